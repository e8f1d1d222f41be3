"""Rebuild on logs of every form: V2, IPv6, CRCs, garbage behind BLANK, a log that begins later."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as dataset
import pytest

from fakes.log_builder import LogBuilder, flip, overwrite, varied
from fakes.plain_format import encode_unit
from tandemlog.format.files.index_layout import (
    ENTRY_DTYPE,
    decode_index_header,
    entry_position,
    key_hash,
    tag_key,
)
from tandemlog.format.files.queue_unit import PRE_BLANK, UNIT_DTYPE, tags_code
from tandemlog.format.record.properties import split_keys
from tandemlog.format.record.record import Record
from tandemlog.logs.audit.audit_span import audit_span
from tandemlog.logs.executors import InProcess
from tandemlog.logs.job_errors import (
    CorruptLogError,
    OnCorruption,
    OptionError,
    PipelineError,
    StoreLayoutError,
)
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.export import ExportOptions, export
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog.logs.jobs.restore import restore
from tandemlog.logs.jobs.stats import stats
from tandemlog.logs.reading.log_source import open_store
from tandemlog.logs.reading.log_spans import split
from tandemlog.logs.tasks.store_settings import index_paths

HERE = InProcess(2)
QUEUE_FILE = 100
SLOTS, ENTRIES = 11, 30
OPTIONS = RebuildOptions(
    index_slots=SLOTS, index_entries=ENTRIES, queue_file_size=QUEUE_FILE, target_bytes=1500
)


def expected_queues(records: list[Record]) -> dict[str, bytes]:
    """Path and content of every queue file, unit by unit."""
    files: dict[str, bytearray] = {}
    started: set[tuple[str, int]] = set()
    for record in records:
        if record.sys_flag & 0xC in (4, 12):
            continue
        delay = record.properties.get("DELAY")
        code = tags_code(record.topic, record.tags, delay, record.store_timestamp)
        unit = encode_unit(record.physical_offset, record.size, code)
        place = record.queue_offset * 20
        base = place - place % QUEUE_FILE
        name = f"{record.topic}/{record.queue_id}/{base:020d}"
        file = files.setdefault(name, bytearray(QUEUE_FILE))
        if (record.topic, record.queue_id) not in started:
            started.add((record.topic, record.queue_id))
            file[: place - base] = PRE_BLANK * ((place - base) // 20)
        file[place - base : place - base + 20] = unit
    return {name: bytes(data) for name, data in files.items()}


def expected_entries(records: list[Record], tags: bool = True) -> list[tuple[int, int]]:
    found = []
    for record in records:
        if record.sys_flag & 0xC == 12:
            continue
        keys = [record.uniq_key] if record.uniq_key else []
        keys += split_keys(record.keys or "")
        if tags and record.tags:
            keys.append(tag_key(record.tags))
        found += [(key_hash(record.topic, key), record.physical_offset) for key in keys]
    return found


def read_queues(out: Path) -> dict[str, bytes]:
    root = out / "consumequeue"
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def read_entries(out: Path) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for path in index_paths(out):
        data = path.read_bytes()
        count = decode_index_header(data).next_entry - 1
        entries = np.frombuffer(data, ENTRY_DTYPE, count, entry_position(SLOTS, 1))
        pairs = (entries["key_hash"].tolist(), entries["physical_offset"].tolist())
        found += zip(*pairs, strict=True)
    return found


@pytest.mark.parametrize("start", [0, 8192 * 3])
@pytest.mark.parametrize("garbage", [b"", b"\xda\xa3\x20\xa7 old bytes of a pool " * 40])
def test_records_of_every_form(tmp_path: Path, start: int, garbage: bytes) -> None:
    builder = varied(LogBuilder(tmp_path / "store", 8192, start=start, garbage=garbage))
    store = builder.write()
    result = rebuild(HERE, store, tmp_path / "out", OPTIONS)
    assert read_queues(tmp_path / "out") == expected_queues(builder.records)
    assert read_entries(tmp_path / "out") == expected_entries(builder.records)
    assert result.summary["records"] == len(builder.records)
    found = audit(HERE, store, target_bytes=1500)
    assert found.findings == []
    assert found.summary["records"] == len(builder.records)


def test_a_late_log_has_pre_blank_units(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "store", start=4096 * 7)
    for number in range(93, 100):
        builder.put("Orders", 2, queue_offset=number)
    store = builder.write()
    rebuild(HERE, store, tmp_path / "out", OPTIONS)
    queues = read_queues(tmp_path / "out")
    assert queues == expected_queues(builder.records)
    assert queues[f"Orders/2/{1800:020d}"].startswith(PRE_BLANK * 3)


def test_a_log_may_begin_inside_its_first_file(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "store", start=4096 + 700)
    for number in range(30):
        builder.put("Orders", number % 2, queue_offset=5 + number // 2)
    store = builder.write()
    rebuild(HERE, store, tmp_path / "out", OPTIONS)
    assert read_queues(tmp_path / "out") == expected_queues(builder.records)
    assert audit(HERE, store).holds


def test_without_tags_where_the_stores_index_has_none(tmp_path: Path) -> None:
    builder = varied(LogBuilder(tmp_path / "store", 8192))
    store = builder.write()
    old = RebuildOptions(queues=False, index_slots=SLOTS, index_entries=ENTRIES, index_tags=False)
    rebuild(HERE, store, store, old)
    result = rebuild(HERE, store, tmp_path / "out", OPTIONS)
    assert result.summary["index_tags"] is False
    assert read_entries(tmp_path / "out") == expected_entries(builder.records, tags=False)


def schedule_codes(folder: Path) -> list[int]:
    path = folder / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "1" / f"{0:020d}"
    codes: list[int] = np.frombuffer(path.read_bytes(), UNIT_DTYPE)["tags_code"].tolist()
    return codes


def test_delay_levels_are_those_of_the_stores_own_queues(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "store")
    delayed = [builder.put("SCHEDULE_TOPIC_XXXX", 1, properties={"DELAY": "2"}) for _ in range(5)]
    builder.write()
    own = replace(OPTIONS, delay_levels="1s 9s")
    rebuild(HERE, builder.store, tmp_path / "own", own)
    expected = [each.store_timestamp + 9000 for each in delayed]
    assert schedule_codes(tmp_path / "own") == expected
    (tmp_path / "own" / "consumequeue").rename(builder.store / "consumequeue")
    rebuild(HERE, builder.store, tmp_path / "learned", OPTIONS)
    assert schedule_codes(tmp_path / "learned") == expected
    export(HERE, builder.store, tmp_path / "archive")
    restore(HERE, tmp_path / "archive", tmp_path / "again", OPTIONS)
    assert schedule_codes(tmp_path / "again") == expected


def test_light_queues_are_made_and_inner_batches_are_not(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "store")
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}
    first = builder.put(properties=light)
    builder.put("Batches", properties={"INNER_NUM": "4", "INNER_BASE": "0"}, sys_flag=0xC0)
    builder.put("Batches", queue_offset=4, properties={"KEYS": "k"}, sys_flag=0xC0)
    light = {"INNER_MULTI_DISPATCH": "%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "1"}
    second = builder.put("Audit", properties=light)
    builder.write()
    result = rebuild(HERE, builder.store, tmp_path / "out", OPTIONS)
    assert result.summary["topics"] == {"Audit": 1, "Batches": 2, "Orders": 1}
    units = [encode_unit(each.physical_offset, each.size, 0) for each in (first, second)]
    expected = {
        "Orders/0": units[0],
        "Audit/0": units[1],
        "%LMQ%a/0": units[0],
        "%LMQ%b/0": units[0] + units[1],
    }
    assert read_queues(tmp_path / "out") == {
        f"{name}/{0:020d}": data.ljust(QUEUE_FILE, b"\0") for name, data in expected.items()
    }
    audited = audit(HERE, builder.store)
    assert (audited.findings, audited.summary["topics"]) == ([], result.summary["topics"])


def test_a_torn_tail_is_left_out(tmp_path: Path) -> None:
    builder = varied(LogBuilder(tmp_path / "store", 8192))
    last = builder.put(body=b"b" * 300)
    store = builder.write()
    overwrite(builder, last.physical_offset + 150, bytes(last.size - 150))
    result = rebuild(HERE, store, tmp_path / "out", OPTIONS)
    assert read_queues(tmp_path / "out") == expected_queues(builder.records[:-1])
    assert any("not written to its end" in note for note in result.notes)


def test_damage_stops_a_rebuild_unless_it_is_told_to_go_on(tmp_path: Path) -> None:
    builder = varied(LogBuilder(tmp_path / "store", 8192))
    store = builder.write()
    bad = builder.records[20]
    overwrite(builder, bad.physical_offset, b"\0\0\0\1")
    with pytest.raises(CorruptLogError) as caught:
        rebuild(HERE, store, tmp_path / "out", OPTIONS)
    assert caught.value.offset == bad.physical_offset
    assert f"message {bad.queue_offset} of {bad.topic}/{bad.queue_id}" in str(caught.value)
    assert not any((tmp_path / "out").iterdir())
    skipping = RebuildOptions(queue_file_size=QUEUE_FILE, index=False, target_bytes=1500,
                              on_corruption=OnCorruption.SKIP)  # fmt: skip
    result = rebuild(HERE, store, tmp_path / "out", skipping)
    assert [finding.offset for finding in result.findings] == [bad.physical_offset]


def test_what_cannot_be_is_said_before_anything_is_written(tmp_path: Path) -> None:
    builder = varied(LogBuilder(tmp_path / "store", 8192))
    store = builder.write()
    (tmp_path / "out" / "index").mkdir(parents=True)
    with pytest.raises(OptionError, match="exists already"):
        rebuild(HERE, store, tmp_path / "out", OPTIONS)
    (store / "index").mkdir()
    (store / "index" / "20261121071456450").write_bytes(bytes(1234))
    with pytest.raises(StoreLayoutError, match="1234 bytes; 11 slots and 30 entries make"):
        rebuild(HERE, store, tmp_path / "new", OPTIONS)
    with pytest.raises(StoreLayoutError, match="multiple of 20"):
        rebuild(HERE, store, tmp_path / "new", RebuildOptions(index=False, queue_file_size=99))
    assert not (tmp_path / "new").exists()


def test_a_topic_that_is_no_folder_name_is_refused(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "store")
    builder.put("../../etc")
    with pytest.raises(PipelineError, match="is not a valid folder name"):
        rebuild(HERE, builder.write(), tmp_path / "out", OPTIONS)


def test_an_empty_log_gives_empty_results(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "store")
    store = builder.write()
    (store / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    result = rebuild(HERE, store, tmp_path / "out", OPTIONS)
    assert result.summary["records"] == 0
    assert read_queues(tmp_path / "out") == {}
    assert audit(HERE, store).holds


def test_the_raw_form_keeps_every_byte(tmp_path: Path) -> None:
    """Garbage behind BLANKs, damage in the middle, a torn tail, stale bytes behind it."""
    builder = varied(LogBuilder(tmp_path / "store", 8192, garbage=b"pool bytes " * 700))
    last = builder.put(body=b"b" * 300)
    store = builder.write()
    overwrite(builder, builder.records[30].physical_offset + 3, b"\xff\xff")
    overwrite(builder, last.physical_offset + 150, bytes(last.size - 150))
    overwrite(builder, builder.end + 50, b"left behind")
    (store / "commitlog" / f"{builder.end // 8192 * 8192 + 8192:020d}").write_bytes(bytes(8192))
    (store / "abort").write_bytes(b"4711")
    with pytest.raises(CorruptLogError):
        export(HERE, store, tmp_path / "archive")
    options = ExportOptions(on_corruption=OnCorruption.SKIP, target_bytes=1500)
    export(HERE, store, tmp_path / "archive", options)
    restore(HERE, tmp_path / "archive", tmp_path / "again", RebuildOptions(
        index_slots=SLOTS, index_entries=ENTRIES, queue_file_size=QUEUE_FILE))  # fmt: skip
    for path in (store / "commitlog").iterdir():
        assert (tmp_path / "again" / "commitlog" / path.name).read_bytes() == path.read_bytes()
    assert (tmp_path / "again" / "abort").read_bytes() == b"4711"


def test_restore_refuses_what_is_not_whole(tmp_path: Path) -> None:
    builder = varied(LogBuilder(tmp_path / "store", 8192))
    export(HERE, builder.write(), tmp_path / "archive", ExportOptions(target_bytes=1500))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(OptionError, match="not an empty folder"):
        restore(HERE, tmp_path / "archive", tmp_path / "full")
    parts = sorted((tmp_path / "archive" / "raw").iterdir())
    parts[1].write_bytes(parts[2].read_bytes())
    with pytest.raises(StoreLayoutError, match="the manifest says"):
        restore(HERE, tmp_path / "archive", tmp_path / "again")
    assert not (tmp_path / "again" / "commitlog").exists()
    parts[1].unlink()
    with pytest.raises(PipelineError, match="the part is missing"):
        restore(HERE, tmp_path / "archive", tmp_path / "again")
    with pytest.raises(PipelineError, match=r"no manifest\.json"):
        restore(HERE, tmp_path, tmp_path / "again")


@pytest.mark.parametrize(
    ("queue_offset", "size", "said"),
    [(None, 21, "multiple of 20"), (1 << 40, 100, "--log-only")],
)
def test_a_restore_that_fails_can_be_tried_again(
    tmp_path: Path, queue_offset: int | None, size: int, said: str
) -> None:
    """Sizes that do not fit are said first; where a record's own number lets no queue be made, the
    log and the small files do not stay behind as half a store."""
    builder = LogBuilder(tmp_path / "store")
    for number in (None, queue_offset):
        builder.put(queue_offset=number)
    store = builder.write()
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text("{}")
    archive, again = tmp_path / "archive", tmp_path / "again"
    export(HERE, store, archive)
    with pytest.raises(PipelineError, match=said):
        restore(HERE, archive, again, replace(OPTIONS, queue_file_size=size))
    assert not again.exists() or list(again.iterdir()) == []
    restore(HERE, archive, again, replace(OPTIONS, queues=False, index=False, queue_file_size=size))
    for path in (store / "commitlog").iterdir():
        assert (again / "commitlog" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("bit", [2, 7])
def test_a_store_time_that_is_no_date_stops_no_job(tmp_path: Path, bit: int) -> None:
    """No CRC covers a record's store time: a turned bit in its first byte makes a year that Python
    and Arrow do not know. Its rows have no time, day and hour then; no record is lost."""
    builder = varied(LogBuilder(tmp_path / "store", 8192))
    store = builder.write()
    flip(builder, builder.records[7].physical_offset + 56, bit)
    count = len(builder.records)
    export(HERE, store, tmp_path / "archive")
    table = dataset.dataset(tmp_path / "archive" / "messages", partitioning="hive").to_table()
    assert table.num_rows == count
    for name in ("store_timestamp", "day"):
        assert table.column(name).null_count == 1
    result = stats(HERE, store, tmp_path / "stats")
    assert result.summary["records"] == count
    assert [row["records"] for row in result.rows if row["hour"] is None] == [1]
    assert (tmp_path / "stats" / "stats.png").is_file()
    found = list(audit_rows(store))
    assert sum(row["records"] for row in found) == count
    assert any(None in (row["min_store_timestamp"], row["max_store_timestamp"]) for row in found)


def audit_rows(store: Path) -> Iterator[dict[str, Any]]:
    """What the view `audit` has of a log, a row a file."""
    source = open_store(store)
    log = source.connect()
    for span in split(source.files, source.start(), source.end().offset, 1 << 20):
        yield audit_span(log, source.files, span).row()
    log.close()

"""Queues and index made from RocketMQ's own commit logs, against RocketMQ's own files."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.derived import Derived
from fakes.memory_log import MemoryLog
from helpers import golden
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.recovery.index_checking import check_newest, has_tag_entries

pytestmark = pytest.mark.golden

STORES = pytest.mark.parametrize("store", golden.stores(), ids=lambda each: each.label)


@dataclass
class Case:
    """A copy, its log as far as RocketMQ reads it, and our dispatch over it."""

    copy: golden.GoldenCopy
    log: MemoryLog
    derived: Derived


def case_of(store: golden.Golden, tmp_path: Path, *, rebuild: bool) -> Case:
    copy = store.copy(tmp_path)
    messages = copy.expected("messages")
    log = MemoryLog.of_directory(copy.store / "commitlog")
    log.cut(messages[-1]["physical_offset"] + messages[-1]["size"])
    log.times = {each["physical_offset"]: each["store_timestamp"] for each in messages}
    root = copy.store
    if rebuild:
        shutil.move(root / "consumequeue", tmp_path / "theirs")
        shutil.move(root / "index", tmp_path / "their-index")
    sizes = copy.sizes
    derived = Derived.over(
        log, RealFileSystem(), root,
        queue_file_size=sizes["queue_file_size"], slots=sizes["index_slots"],
        entries=sizes["index_entries"], index_tags=store.indexes_tags,
    )  # fmt: skip
    return Case(copy, log, derived)


def unit_rows(derived: Derived) -> set[tuple[object, ...]]:
    return {
        (topic, queue_id, number + derived.queues.queue(dense).first_unit, *unit)
        for dense, (topic, queue_id) in enumerate(derived.table.names())
        for number, unit in enumerate(derived.units(topic, queue_id))
    }


def expected_units(copy: golden.GoldenCopy) -> set[tuple[object, ...]]:
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code")
    return {tuple(row[name] for name in names) for row in copy.expected("queues")}


@STORES
def test_queues_from_the_log_alone_are_rocketmqs_byte_for_byte(
    store: golden.Golden, tmp_path: Path
) -> None:
    case = case_of(store, tmp_path, rebuild=True)
    case.derived.dispatch()
    assert unit_rows(case.derived) == expected_units(case.copy)
    case.derived.queues.flush()
    theirs = tmp_path / "theirs"
    for file in sorted(path for path in theirs.rglob("*") if path.is_file()):
        ours = case.copy.store / "consumequeue" / file.relative_to(theirs)
        if store.killed:
            # Theirs were behind their log: what they have, ours have too.
            length = len(file.read_bytes().rstrip(b"\0"))
            assert ours.read_bytes()[:length] == file.read_bytes()[:length], file
        else:
            assert ours.read_bytes() == file.read_bytes(), file


@STORES
def test_the_index_from_the_log_alone_is_rocketmqs(store: golden.Golden, tmp_path: Path) -> None:
    case = case_of(store, tmp_path, rebuild=True)
    case.derived.dispatch()
    expected = case.copy.expected("index")
    ours = case.derived.entries()
    if not store.exact_index:
        assert {each[2:] for each in ours} == {
            (each["key_hash"], each["physical_offset"]) for each in expected
        }
        return
    assert [each[1:] for each in ours] == [
        (each["number"], each["key_hash"], each["physical_offset"]) for each in expected
    ]
    rows = [
        row for file in case.derived.index.files for row in file.read(1, file.header.next_entry)
    ]
    assert [(int(row["time_diff"]), int(row["previous"])) for row in rows] == [
        (each["time_diff_seconds"], each["previous"]) for each in expected
    ]
    case.derived.index.flush()
    theirs = sorted((tmp_path / "their-index").iterdir())
    for file, twin in zip(case.derived.index.files, theirs, strict=True):
        assert file.path.read_bytes() == twin.read_bytes()
    headers = case.copy.source / "expected" / "index-headers.jsonl"
    if headers.exists():
        for file, row in zip(case.derived.index.files, golden.read_lines(headers), strict=True):
            assert file.header.used_slots == row["hash_slot_count"]
            assert file.header.next_entry == row["index_count"]


@STORES
def test_a_store_of_rocketmq_is_gone_on_with(store: golden.Golden, tmp_path: Path) -> None:
    case = case_of(store, tmp_path, rebuild=False)
    derived, log = case.derived, case.log
    derived.open(clean=not store.killed, dispatched=log.min_offset if store.killed else log.end)
    assert derived.queue_findings is not None
    assert derived.index_findings is not None
    assert not derived.queue_findings.damaged
    source = derived.reput._source
    assert has_tag_entries(derived.index, source, log.end) == source.index_tags
    if store.killed:
        assert derived.index_findings.compare
        check = check_newest(derived.index, source, log.end)
        assert check.kept > 0
    derived.dispatch()
    assert not derived.queues.damaged
    assert unit_rows(derived) == expected_units(case.copy)
    expected = [(each["key_hash"], each["physical_offset"]) for each in case.copy.expected("index")]
    ours = [each[2:] for each in derived.entries()]
    assert set(ours) == set(expected)
    if store.exact_index:
        assert ours == expected
    elif store.killed:
        assert len(ours) == len(set(ours))


@STORES
def test_reads_answer_what_rocketmqs_client_got(store: golden.Golden, tmp_path: Path) -> None:
    case = case_of(store, tmp_path, rebuild=True)
    derived = case.derived.dispatch()

    def time_of(physical_offset: int, size: int) -> int:
        return case.log.time_of(physical_offset)

    for row in case.copy.client("search_offset"):
        dense = derived.table.get(row["topic"], row["queue_id"])
        boundary = Boundary(row["boundary"])
        assert derived.queues.search(dense, row["timestamp"], boundary, time_of) == row["offset"]
    for row in case.copy.client("range"):
        dense = derived.table.get(row["topic"], row["queue_id"])
        if dense >= 0:
            assert derived.queues.min_offset(dense) == row["min_offset"]
            assert derived.queues.max_offset(dense) == row["max_offset"]
    for row in case.copy.client("query_key"):
        found = set(derived.index.query(row["topic"], row["key"]))
        assert set(row["physical_offsets"]) <= found

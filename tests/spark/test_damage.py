"""One flipped bit, a missing or cut-off file, stale records: audit and compare name the place."""

import shutil
from pathlib import Path

import pytest

from fakes.log_builder import LogBuilder, flip, overwrite
from tandemlog.format.record.record import Record, encode_record
from tandemlog.logs.audit.audit_span import Finding
from tandemlog.logs.executors import InProcess
from tandemlog.logs.job_errors import OnCorruption, StoreLayoutError, StoreMissingError
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.compare import compare
from tandemlog.logs.jobs.export import ExportOptions, export
from tandemlog.logs.jobs.job_result import JobResult
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog.logs.jobs.stats import stats

HERE = InProcess(2)
FILE = 8192
# A piece that is smaller than most files, and one larger than the log.
TARGETS = [1500, 1 << 30]


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    """Five files with queues, as a broker leaves them."""
    builder = LogBuilder(tmp_path / "store", FILE)
    while builder.end < 4 * FILE + 3000:
        number = len(builder.records)
        body = bytes([number % 250 + 1]) * (30 + number % 40)
        builder.put(f"T{number % 3}", number % 2, body)
    store = builder.write()
    rebuild(HERE, store, store, RebuildOptions(index=False, queue_file_size=2000))
    shutil.copytree(store, tmp_path / "copy")
    return builder


def encoded(record: Record) -> bytes:
    return encode_record(
        topic=record.topic, body=record.body, properties=record.properties_raw,
        queue_id=record.queue_id, born_timestamp=record.born_timestamp,
        born_host=record.born_host, queue_offset=record.queue_offset,
        physical_offset=record.physical_offset, store_timestamp=record.store_timestamp,
        store_host=record.store_host,
    )  # fmt: skip


def both(log: LogBuilder, target: int) -> tuple[JobResult, JobResult]:
    """What audit and compare say of a store that was damaged."""
    copy = log.store.parent / "copy"
    return (
        audit(HERE, log.store, target_bytes=target),
        compare(HERE, copy, log.store, target_bytes=target, block_bytes=4096),
    )


def names(finding: Finding, log: LogBuilder, record: Record) -> bool:
    return (
        finding.file == str(log.path(record.physical_offset))
        and finding.offset == record.physical_offset
        and (finding.topic, finding.queue_id, finding.queue_offset)
        == (record.topic, record.queue_id, record.queue_offset)
    )


def test_equal_copies(log: LogBuilder) -> None:
    found, difference = both(log, 1500)
    assert (found.findings, difference.findings) == ([], [])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "place", [0, 3, 4, 7, 8, 28, 35, 39, 84, 87, 90, 110], ids=lambda place: f"byte{place}"
)
def test_one_flipped_bit(log: LogBuilder, target: int, place: int) -> None:
    record = log.records[len(log.records) // 2]
    flip(log, record.physical_offset + place, 5)
    found, difference = both(log, target)
    assert not found.holds
    assert [each for each in found.findings if names(each, log, record)]
    assert [names(each, log, record) for each in difference.findings] == [True]


@pytest.mark.parametrize("place", [24, 40, 48, 60, 70, 80, -5])
def test_compare_finds_what_no_crc_covers(log: LogBuilder, place: int) -> None:
    record = log.records[17]
    flip(log, record.physical_offset + place % record.size)
    _, difference = both(log, 1500)
    assert [names(each, log, record) for each in difference.findings] == [True]


def test_every_first_record_of_a_span_is_looked_at(log: LogBuilder) -> None:
    """Damage at a border of spans belongs to the one before it."""
    for record in log.records[5:40]:
        flip(log, record.physical_offset + 100)
        found = audit(HERE, log.store, target_bytes=700)
        assert [names(each, log, record) for each in found.findings] == [True]
        flip(log, record.physical_offset + 100)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_file(log: LogBuilder, target: int, number: int) -> None:
    path = log.path(number * FILE)
    lost = next(each for each in log.records if each.physical_offset >= number * FILE)
    path.unlink()
    found, difference = both(log, target)
    (finding,) = found.findings
    assert (finding.kind, finding.file, finding.offset) == (
        "missing_file",
        str(path),
        number * FILE,
    )
    assert f"message {lost.queue_offset}" in finding.detail
    (finding,) = difference.findings
    assert finding.kind == "missing_file"
    assert names(finding, log, lost)


def test_a_missing_last_file(log: LogBuilder) -> None:
    log.path(4 * FILE).unlink()
    lost = next(each for each in log.records if each.physical_offset >= 4 * FILE)
    found, difference = both(log, 1500)
    (finding,) = found.findings
    assert (finding.kind, finding.file) == ("lost_end", str(log.path(4 * FILE)))
    assert [names(each, log, lost) for each in difference.findings] == [True]


def test_a_missing_first_file_looks_like_retention(log: LogBuilder) -> None:
    log.path(0).unlink()
    found, difference = both(log, 1500)
    assert found.holds
    assert str(log.path(0)) in found.notes[0]
    (finding,) = difference.findings
    assert finding.kind == "begins_later"
    assert names(finding, log, log.records[0])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("number", [0, 2])
def test_a_file_that_is_cut_off(log: LogBuilder, target: int, number: int) -> None:
    cut = number * FILE + 5000
    with log.path(cut).open("r+b") as file:
        file.truncate(5000)
    lost = next(each for each in log.records if each.physical_offset + each.size > cut)
    found, difference = both(log, target)
    (finding,) = found.findings
    assert finding.kind == "truncated_file"
    assert (finding.file, finding.offset) == (str(log.path(cut)), lost.physical_offset)
    assert f"message {lost.queue_offset}" in finding.detail
    assert "truncated_file" in {each.kind for each in difference.findings}
    assert not difference.summary["equal"]


def test_a_last_file_that_is_cut_off(log: LogBuilder) -> None:
    cut = log.end - 100
    with log.path(cut).open("r+b") as file:
        file.truncate(cut % FILE)
    found, difference = both(log, 1500)
    assert {each.kind for each in found.findings} == {"truncated_file", "lost_end"}
    assert {each.kind for each in difference.findings} == {"truncated_file", "ends_earlier"}
    assert names(difference.findings[0], log, log.records[-1])


@pytest.mark.parametrize("gap", [0, 77])
def test_a_stale_record_behind_the_end(log: LogBuilder, gap: int) -> None:
    old = encode_record(topic="Old", queue_id=4, queue_offset=9, body=b"o", physical_offset=123)
    overwrite(log, log.end + gap, old)
    for result in both(log, 1500):
        (finding,) = result.findings
        assert (finding.kind, finding.file) == ("stale", str(log.path(log.end)))
        assert finding.offset == log.end + gap
        assert (finding.topic, finding.queue_id, finding.queue_offset) == ("Old", 4, 9)
        assert not result.holds


def test_old_records_in_what_a_broker_without_a_map_leaves_are_a_note(log: LogBuilder) -> None:
    old = encode_record(topic="Old", queue_id=4, queue_offset=9, body=b"o", physical_offset=123)
    overwrite(log, log.end, b"the second half of some record" + old)
    for result in both(log, 1500):
        assert result.holds
        assert {each.kind for each in result.findings} == {"left_over"}
        assert any("lies at 123" in each.detail for each in result.findings)


def test_what_a_truncation_left_is_a_note(log: LogBuilder) -> None:
    left = encode_record(topic="T0", queue_id=0, queue_offset=1, body=b"left",
                         physical_offset=log.end + 200)  # fmt: skip
    overwrite(log, log.end, b"the end of a record that is gone")
    overwrite(log, log.end + 200, left)
    found = audit(HERE, log.store)
    assert found.holds
    assert "left_over" in {each.kind for each in found.findings}


def test_a_torn_tail_is_a_note_and_a_damaged_end_a_fault(log: LogBuilder) -> None:
    shutil.rmtree(log.store / "consumequeue")
    last = log.records[-1]
    overwrite(log, last.physical_offset + 100, bytes(last.size - 100))
    found = audit(HERE, log.store)
    assert found.holds
    assert [each.kind for each in found.findings] == ["torn"]
    overwrite(log, last.physical_offset, encoded(last))
    flip(log, last.physical_offset + 100)
    found = audit(HERE, log.store)
    assert not found.holds
    assert [each.kind for each in found.findings] == ["corrupt"]
    assert names(found.findings[0], log, last)


def test_a_repeated_number_is_named(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "store")
    for number in (0, 1, 2, 1, 4, 8, 9):
        builder.put("T", 0, queue_offset=number)
    found = audit(HERE, builder.write())
    assert [each.kind for each in found.findings] == ["queue_overlap", "queue_gap", "queue_gap"]
    assert all(each.fault for each in found.findings)
    assert "message 5..7 of T/0" in found.findings[2].detail


@pytest.mark.parametrize("numbers", [(0, 1, 2, 0, 1), (0, 1, 2, 0), (0, 1, 2, 3, 2, 3, 4)])
def test_a_topic_that_was_made_again_is_no_fault(tmp_path: Path, numbers: list[int]) -> None:
    builder = LogBuilder(tmp_path / "store")
    for number in numbers:
        builder.put("T", 0, queue_offset=number)
    assert audit(HERE, builder.write()).holds


def test_unequal_property_crc(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "store")
    records = [builder.put("T", 0, property_crc=True) for _ in range(5)]
    store = builder.write()
    flip(builder, records[3].physical_offset + 70)  # the store host: no body CRC covers it
    (finding,) = audit(HERE, store).findings
    assert finding.kind == "property_crc"
    assert names(finding, builder, records[3])


def test_stores_that_cannot_be_compared(tmp_path: Path) -> None:
    for name, size in (("a", 4096), ("b", 8192)):
        builder = LogBuilder(tmp_path / name, size)
        builder.put()
        builder.write()
    with pytest.raises(StoreLayoutError, match=r"4096 bytes, .* of 8192"):
        compare(HERE, tmp_path / "a", tmp_path / "b")
    with pytest.raises(StoreMissingError, match="is not a folder"):
        compare(HERE, tmp_path / "a", tmp_path / "c")


def test_a_job_that_passes_over_a_missing_file_says_so(log: LogBuilder, tmp_path: Path) -> None:
    """Nothing of it can be scanned; the job is not whole all the same, nor one over a file that
    ends behind a whole record."""
    log.path(FILE).unlink()
    skip = OnCorruption.SKIP
    results = [
        rebuild(HERE, log.store, tmp_path / "a", RebuildOptions(index=False, on_corruption=skip)),
        export(HERE, log.store, tmp_path / "b", ExportOptions(on_corruption=skip)),
        stats(HERE, log.store, tmp_path / "c", on_corruption=skip),
    ]
    for result in results:
        assert [(each.kind, each.offset) for each in result.findings] == [("missing_file", FILE)]
        assert not result.holds
    second = [each for each in log.records if each.physical_offset >= 2 * FILE][3]
    with log.path(2 * FILE).open("r+b") as file:
        file.truncate(second.physical_offset - 2 * FILE)
    result = stats(HERE, log.store, tmp_path / "d", on_corruption=skip)
    assert len(result.findings) == 2

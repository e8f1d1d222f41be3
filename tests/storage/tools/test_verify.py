"""verify finds nothing in RocketMQ's stores, and names whatever is then changed in one."""

import shutil
import struct
from pathlib import Path

import pytest

from helpers import golden
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import StoreLayoutError
from tandemlog_server.storage.tools.faults import VerifyReport
from tandemlog_server.storage.tools.rebuild import rebuild
from tandemlog_server.storage.tools.recover import recover
from tandemlog_server.storage.tools.verify import verify

pytestmark = pytest.mark.golden


def config_of(copy: golden.GoldenCopy) -> StoreConfig:
    sizes = copy.sizes
    return StoreConfig(
        directory=copy.store,
        index_slots=sizes["index_slots"],
        index_entries=sizes["index_entries"],
    )


def verified(copy: golden.GoldenCopy) -> VerifyReport:
    return verify(config_of(copy))


@pytest.mark.parametrize("store", golden.stores(), ids=lambda each: each.label)
def test_a_store_of_rocketmq_holds(store: golden.Golden, tmp_path: Path) -> None:
    copy = store.copy(tmp_path)
    report = verified(copy)
    assert [str(fault) for fault in report.faults] == []
    assert report.records == len(copy.expected("messages"))
    assert report.units == len(copy.expected("queues"))
    assert report.indexes_tags == store.indexes_tags


def test_queues_in_a_rocksdb_are_named_and_made_again(tmp_path: Path) -> None:
    found = next(each for each in golden.stores() if "5.5.0-clean" in each.label)
    copy = found.copy(tmp_path)
    shutil.rmtree(copy.store / "consumequeue")
    (copy.store / "consumequeue").mkdir()
    (copy.store / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")
    report = verified(copy)
    assert [fault.position for fault in report.faults] == [0]
    assert "RocksDB" in str(report.faults[0])
    for make in (recover, rebuild):
        make(config_of(copy))
        report = verified(copy)
        assert (report.faults, report.units) == ([], len(copy.expected("queues")))
        assert (copy.store / "consumequeue" / "CURRENT").exists()
    assert not list(copy.store.glob("rebuild-*"))


def test_addresses_of_an_extended_queue_are_not_held_against_a_unit(tmp_path: Path) -> None:
    found = next(each for each in golden.stores() if "5.5.0-clean" in each.label)
    copy = found.copy(tmp_path)
    (copy.store / "consumequeue_ext").mkdir()
    row, path = queue_of(copy)
    at = row["queue_offset"] * 20
    patch(path, at + 12, struct.pack(">q", -(1 << 63) + 48))
    report = verified(copy)
    assert report.holds
    assert any("1 queue unit with the tags code in consumequeue_ext" in n for n in report.notes)
    flip(path, at + 11)
    assert f"unit {row['queue_offset']} says" in first_fault(copy)


def test_a_broker_that_keeps_no_light_queues_may_lack_them_all_but_not_one(tmp_path: Path) -> None:
    found = next(each for each in golden.stores() if "5.5.0-features" in each.label)
    copy = found.copy(tmp_path)
    first, second = sorted((copy.store / "consumequeue").glob("%LMQ%*"))
    shutil.rmtree(first)
    assert f"consumequeue/{first.name}/0" in first_fault(copy)
    shutil.rmtree(second)
    report = verified(copy)
    assert report.holds
    assert any("2 light queues" in note for note in report.notes)
    recover(config_of(copy))
    assert verified(copy).units == len(copy.expected("queues"))


@pytest.fixture
def small(tmp_path: Path) -> golden.GoldenCopy:
    found = next(each for each in golden.stores() if "5.5.0-clean" in each.label)
    return found.copy(tmp_path)


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    patch(path, position, bytes([path.read_bytes()[position] ^ 4]))


def first_fault(copy: golden.GoldenCopy) -> str:
    report = verified(copy)
    assert not report.holds
    return str(report.faults[0])


def log_file(copy: golden.GoldenCopy, offset: int) -> tuple[Path, int]:
    size = copy.sizes["commit_log_file_size"]
    return copy.store / "commitlog" / f"{offset - offset % size:020d}", offset % size


@pytest.mark.parametrize("field", [0, 4, 9, 20, 30, 90])
def test_a_flipped_bit_in_the_log_is_named(small: golden.GoldenCopy, field: int) -> None:
    row = small.expected("messages")[100]
    path, position = log_file(small, row["physical_offset"])
    flip(path, position + field)
    message = first_fault(small)
    assert str(path) in message
    assert str(row["physical_offset"]) in message


def queue_of(copy: golden.GoldenCopy) -> tuple[dict[str, int], Path]:
    row = next(row for row in copy.expected("queues") if row["queue_offset"] == 20)
    folder = copy.store / "consumequeue" / row["topic"] / str(row["queue_id"])
    return row, folder / f"{0:020d}"


@pytest.mark.parametrize("byte", [7, 11, 19])
def test_a_flipped_bit_in_a_queue_is_named(small: golden.GoldenCopy, byte: int) -> None:
    row, path = queue_of(small)
    flip(path, 20 * 20 + byte)
    message = first_fault(small)
    assert str(path) in message
    assert "unit 20 says" in message
    assert str(row["physical_offset"]) in message


def test_a_missing_unit_is_named(small: golden.GoldenCopy) -> None:
    _, path = queue_of(small)
    patch(path, 20 * 20, bytes(20))
    assert "unit 20 is missing" in first_fault(small)


def test_a_missing_queue_is_named(small: golden.GoldenCopy) -> None:
    row, path = queue_of(small)
    shutil.rmtree(path.parent)
    message = first_fault(small)
    assert f"consumequeue/{row['topic']}/{row['queue_id']}" in message
    assert "unit 0 is missing" in message


def test_a_unit_too_many_is_named(small: golden.GoldenCopy) -> None:
    ends: dict[tuple[str, int], int] = {}
    for row in small.expected("queues"):
        ends[row["topic"], row["queue_id"]] = row["queue_offset"] + 1
    (topic, queue_id), end = next(item for item in ends.items() if item[1] % 100)
    size = small.sizes["queue_file_size"]
    base = end * 20 - end * 20 % size
    path = small.store / "consumequeue" / topic / str(queue_id) / f"{base:020d}"
    patch(path, end * 20 % size, struct.pack(">qiq", 50, 100, 0))
    message = first_fault(small)
    assert f"unit {end} points to offset 50" in message


def entry_position(copy: golden.GoldenCopy, number: int) -> int:
    return 40 + 4 * copy.sizes["index_slots"] + 20 * number


@pytest.mark.parametrize(
    ("byte", "named"),
    [
        (3, "chain"),
        (11, "where no record starts"),
        (15, "entry 50 says 4 s after the file's begin; the record"),
        (19, "chain"),
    ],
)
def test_a_flipped_bit_in_the_index_is_named(
    small: golden.GoldenCopy, byte: int, named: str
) -> None:
    path = sorted((small.store / "index").iterdir())[0]
    flip(path, entry_position(small, 50) + byte)
    report = verified(small)
    assert any(str(path) in fault.file and named in fault.reason for fault in report.faults)


def test_the_time_of_the_first_entry_counts_from_a_file_that_may_be_gone(
    small: golden.GoldenCopy,
) -> None:
    flip(sorted((small.store / "index").iterdir())[0], entry_position(small, 1) + 15)
    assert verified(small).holds


@pytest.mark.parametrize("byte", [0, 7, 8, 15, 16, 23, 24, 31, 36, 38])
def test_a_flipped_bit_in_the_header_of_an_index_file_is_named(
    small: golden.GoldenCopy, byte: int
) -> None:
    # queries by time pass over a file by its header, so a wrong one hides all of its entries
    path = sorted((small.store / "index").iterdir())[0]
    flip(path, byte)
    message = first_fault(small)
    assert str(path) in message
    assert "its header" in message


def test_a_wrong_slot_is_named(small: golden.GoldenCopy) -> None:
    path = sorted((small.store / "index").iterdir())[0]
    used = next(
        slot
        for slot in range(small.sizes["index_slots"])
        if any(path.read_bytes()[40 + 4 * slot : 44 + 4 * slot])
    )
    patch(path, 40 + 4 * used, bytes(4))
    assert f"slot {used} holds entry 0" in first_fault(small)


def test_a_missing_entry_is_named(small: golden.GoldenCopy) -> None:
    path = sorted((small.store / "index").iterdir())[-1]
    count = struct.unpack(">i", path.read_bytes()[36:40])[0]
    patch(path, 36, struct.pack(">i", count - 1))
    report = verified(small)
    assert any("there is no entry with hash" in fault.reason for fault in report.faults)


def test_index_sizes_that_do_not_fit_are_an_error(small: golden.GoldenCopy) -> None:
    with pytest.raises(StoreLayoutError, match="index_slots"):
        verify(StoreConfig(directory=small.store))


def test_progress_is_told(small: golden.GoldenCopy) -> None:
    told: list[tuple[int, int]] = []
    sizes = small.sizes
    verify(
        StoreConfig(
            directory=small.store,
            index_slots=sizes["index_slots"],
            index_entries=sizes["index_entries"],
        ),
        progress=lambda done, whole: told.append((done, whole)),
    )
    assert told
    assert told[-1][0] == told[-1][1]

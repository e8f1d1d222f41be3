from pathlib import Path
from typing import Any

import pytest

from fakes.log_builder import LogBuilder
from fakes.plain_format import encode_unit
from tandemlog.format.record.record import Record
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import StoreLayoutError
from tandemlog_server.storage.inspect.geometry import Geometry


def sparse(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def geometry(directory: Path, **settings: Any) -> Geometry:
    config = StoreConfig(directory=directory, index_slots=10, index_entries=20, **settings)
    return Geometry.of(config, RealFileSystem())


def test_an_empty_directory_takes_the_settings(tmp_path: Path) -> None:
    found = geometry(tmp_path, commit_log_file_size=8192, queue_file_size=200)
    assert (found.log_file_size, found.queue_file_size, found.notes) == (8192, 200, ())


def test_files_on_disk_win_over_the_settings(tmp_path: Path) -> None:
    sparse(tmp_path / "commitlog" / f"{0:020d}", 4096)
    sparse(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", 400)
    found = geometry(tmp_path, commit_log_file_size=8192, queue_file_size=200)
    assert (found.log_file_size, found.queue_file_size) == (4096, 400)
    assert [note.split()[0] for note in found.notes] == ["log", "queue"]
    adopted = found.adopted()
    assert (adopted.commit_log_file_size, adopted.queue_file_size) == (4096, 400)


def test_a_length_that_no_queue_file_has_says_nothing(tmp_path: Path) -> None:
    sparse(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", 401)
    assert geometry(tmp_path, queue_file_size=200).adopted().queue_file_size == 200
    sparse(tmp_path / "consumequeue" / "T" / "1" / f"{0:020d}", 400)
    assert geometry(tmp_path, queue_file_size=200).adopted().queue_file_size == 400


def test_a_length_that_no_log_file_has_is_named_with_the_way_out(tmp_path: Path) -> None:
    sparse(tmp_path / "commitlog" / f"{0:020d}", 100)
    with pytest.raises(StoreLayoutError, match=r"has 100 bytes; a log file has 4096 .* bring"):
        geometry(tmp_path)


def test_queues_are_sorted_by_number_and_strays_left_out(tmp_path: Path) -> None:
    for name in ("10", "9", "tmp"):
        (tmp_path / "consumequeue" / "T" / name).mkdir(parents=True)
    (tmp_path / "consumequeue" / "stray").touch()
    assert [queue[:2] for queue in geometry(tmp_path).queue_directories()] == [("T", 9), ("T", 10)]


def test_an_index_of_another_size_is_named_with_the_way_out(tmp_path: Path) -> None:
    sparse(tmp_path / "index" / "20261121071456450", 40 + 4 * 10 + 20 * 20)
    geometry(tmp_path).check_index()
    sparse(tmp_path / "index" / "20261121071456451", 999)
    with pytest.raises(StoreLayoutError, match=r"456451 has 999 bytes; 10 slots .*index_slots"):
        geometry(tmp_path).check_index()


def test_an_index_file_that_a_crash_left_empty_is_no_contradiction(tmp_path: Path) -> None:
    sparse(tmp_path / "index" / "20261121071456450", 0)
    geometry(tmp_path).check_index()


def schedule(store: Path, level: int, delay_ms: int, *records: Record) -> Path:
    """The queue of a level, as a broker leaves it to which the level stood for that delay."""
    units = [
        encode_unit(each.physical_offset, each.size, each.store_timestamp + delay_ms)
        for each in records
    ]
    path = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(level - 1) / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(units).ljust(400, b"\0"))
    return path


def test_the_schedule_queues_tell_the_delay_levels(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path)
    first, second, third = (
        log.put("SCHEDULE_TOPIC_XXXX", int(level) - 1, properties={"DELAY": level})
        for level in ("1", "1", "3")
    )
    log.write()
    schedule(tmp_path, 1, 2000, first, second)
    found = geometry(tmp_path, delay_levels="1s 5s 10s")
    assert (found.delay_levels, found.adopted().delay_levels) == ("2s 5s 10s", "2s 5s 10s")
    assert "'2s 5s 10s'" in " ".join(found.notes)
    schedule(tmp_path, 3, 10_000, third)
    assert geometry(tmp_path, delay_levels="1s 5s 10s").delay_levels == "2s 5s 10s"
    assert geometry(tmp_path, delay_levels="2s 5s 10s").notes == found.notes[:-1]


def test_a_damaged_schedule_queue_tells_nothing(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path)
    record = log.put("SCHEDULE_TOPIC_XXXX", 0, properties={"DELAY": "1"})
    log.write()
    path = schedule(tmp_path, 1, 2000, record)
    path.write_bytes(encode_unit(1 << 40, 100, 5).ljust(400, b"\0"))
    assert geometry(tmp_path, delay_levels="1s").delay_levels == "1s"
    path.write_bytes(bytes(400))
    assert geometry(tmp_path, delay_levels="1s").delay_levels == "1s"
    sparse(path.with_name(f"{800:020d}"), 400)
    assert geometry(tmp_path, delay_levels="1s").delay_levels == "1s"


def test_queues_in_a_rocksdb_are_said_to_be_left_out(tmp_path: Path) -> None:
    sparse(tmp_path / "consumequeue" / "CURRENT", 16)
    assert "is a RocksDB" in geometry(tmp_path).notes[-1]

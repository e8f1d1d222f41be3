from pathlib import Path

import pytest

from storage.config import StoreConfig
from storage.errors import StoreLayoutError
from storage.files import RealFileSystem
from storage.geometry import Geometry


def sparse(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def geometry(directory: Path, **settings: int) -> Geometry:
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

from pathlib import Path

from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.state_files.abort_file import AbortFile


def test_it_exists_between_create_and_remove(tmp_path: Path) -> None:
    abort = AbortFile(tmp_path / "abort", RealFileSystem())
    assert not abort.exists()
    abort.create(4711)
    assert abort.exists()
    assert abort.process_id() == 4711
    abort.remove()
    assert not (tmp_path / "abort").exists()
    abort.remove()


def test_an_old_brokers_empty_file_names_nobody(tmp_path: Path) -> None:
    (tmp_path / "abort").touch()
    abort = AbortFile(tmp_path / "abort", RealFileSystem())
    assert abort.exists()
    assert abort.process_id() is None


def test_the_backup_of_a_broker_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "abort.bak").touch()
    assert not AbortFile(tmp_path / "abort", RealFileSystem()).exists()

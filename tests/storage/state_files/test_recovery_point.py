from pathlib import Path
from zlib import crc32

from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.state_files.recovery_point import RecoveryPoint, RecoveryPointFile

RECORD = RecoveryPoint(
    1000, 2000, 1500, 77, False, {"T": {0: 5, 11: 7}, "订单": {3: 1}}, walked=1700
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    RecoveryPointFile(tmp_path / "own" / "d", RealFileSystem()).save(RECORD)
    file = RecoveryPointFile(tmp_path / "own" / "d", RealFileSystem())
    assert file.load() == RECORD
    assert file.note == ""


def test_a_missing_record_is_none(tmp_path: Path) -> None:
    assert RecoveryPointFile(tmp_path / "d", RealFileSystem()).load() is None


def test_any_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "d"
    data = RECORD.encode()
    for position in range(len(data) - 1):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        file = RecoveryPointFile(path, RealFileSystem())
        assert file.load() is None
        assert "damaged" in file.note


def test_a_cut_record_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "d"
    for length in (0, 1, 20, len(RECORD.encode()) - 2):
        path.write_bytes(RECORD.encode()[:length])
        assert RecoveryPointFile(path, RealFileSystem()).load() is None


def test_another_version_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "d"
    text = b'{"version":2}'
    path.write_bytes(b"%d\n%s\n" % (crc32(text), text))
    file = RecoveryPointFile(path, RealFileSystem())
    assert file.load() is None
    assert "version 2" in file.note

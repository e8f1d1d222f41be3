"""What a broker's store lacks, or has beside what is read, is said at the open and by verify."""

from pathlib import Path

import pytest

from fakes.log_builder import LogBuilder
from fakes.plain_format import encode_unit
from tandemlog.format.files.queue_unit import tags_code
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.faults import VerifyReport
from tandemlog_server.storage.tools.recover import recover
from tandemlog_server.storage.tools.verify import verify

HOUR_MS = 3_600_000


def store_of(folder: Path, *, step_ms: int, files: int = 2) -> LogBuilder:
    """A broker's store whose log has `files` files of ten messages."""
    log = LogBuilder(folder)
    while log.end < files * log.file_size - 600:
        log.put(body=b"x" * 200, step_ms=step_ms)
    log.write()
    units = [
        encode_unit(each.physical_offset, each.size, tags_code(each.topic, each.tags))
        for each in log.records
    ]
    queue = folder / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    queue.parent.mkdir(parents=True)
    queue.write_bytes(b"".join(units).ljust(4_000, b"\0"))
    return log


def config(folder: Path) -> StoreConfig:
    return StoreConfig(folder, index_slots=10, index_entries=200)


def beginning(report: VerifyReport) -> tuple[list[str], list[str]]:
    """(notes, faults) that speak of a log in several folders."""
    return (
        [each for each in report.notes if "storePathCommitLog" in each],
        [str(each) for each in report.faults if "storePathCommitLog" in str(each)],
    )


def test_half_of_a_log_in_two_folders_is_not_called_whole(tmp_path: Path) -> None:
    log = store_of(tmp_path, step_ms=7)
    first = sum(each.physical_offset < log.file_size for each in log.records)
    log.path(0).unlink()
    notes, (fault,) = beginning(verify(config(tmp_path)))
    assert notes == []
    assert f"begins at offset {log.file_size}; the queues know {first} messages before" in fault
    assert any("storePathCommitLog" in each for each in recover(config(tmp_path)).notes)


def test_a_log_that_retention_may_have_shortened_has_a_note(tmp_path: Path) -> None:
    log = store_of(tmp_path, step_ms=HOUR_MS)
    log.path(0).unlink()
    (note,), faults = beginning(verify(config(tmp_path)))
    assert faults == []
    assert "else retention has removed them" in note


def test_a_log_of_several_files_is_in_one_folder(tmp_path: Path) -> None:
    log = store_of(tmp_path, step_ms=7, files=3)
    log.path(0).unlink()
    assert beginning(verify(config(tmp_path))) == ([], [])


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("topicQueueMapping.json", b'"topicQueueMappingInfoMap":{"T":{}}', "static topics"),
        ("lmqConsumerOffset.json", b'"lmqOffsetTable":{"%LMQ%a@0":5}', "light queues"),
    ],
)
def test_tables_that_are_not_read_are_named_unless_they_are_empty(
    tmp_path: Path, name: str, rows: bytes, words: str
) -> None:
    store_of(tmp_path, step_ms=7)
    path = tmp_path / "config" / name
    path.parent.mkdir()
    empty = rows.partition(b":")[0] + b":{}"
    for data in (b"", b'{"dataVersion":{"counter":1},' + empty + b"}"):
        path.write_bytes(data)
        assert not [each for each in verify(config(tmp_path)).notes if name in each]
    path.write_bytes(b'{"dataVersion":{"counter":1},' + rows + b"}")
    (note,) = [each for each in verify(config(tmp_path)).notes if name in each]
    assert words in note
    assert note in recover(config(tmp_path)).notes

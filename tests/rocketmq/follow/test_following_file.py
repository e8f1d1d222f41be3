"""The note of whose log a store holds."""

import pytest

from fakes.stores import DIRECTORY
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.ha.errors import StateFileError
from tandemlog_server.rocketmq.follow.following_file import Following, FollowingFile, TakenOver
from tandemlog_server.storage.disk.checked_json import encode_checked
from tandemlog_server.storage.errors import DiskFullError


@pytest.mark.parametrize("over", [None, TakenOver(77, 1_700_000_000_000)])
def test_it_is_kept(over: TakenOver | None) -> None:
    files = MemoryFiles()
    note = FollowingFile(DIRECTORY, files)
    assert note.load() is None
    note.save(Following("shop", "broker-a", over))
    files.crash()
    assert FollowingFile(DIRECTORY, files).load() == Following("shop", "broker-a", over)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{}", "checksum"),
        (encode_checked({"version": 1}), "cluster"),
        (
            encode_checked({"version": 2, "cluster": "c", "broker": "b"}),
            "start the newer one",
        ),
        (encode_checked({"version": 1, "cluster": "c", "broker": "b", "taken_over": {}}), "end"),
    ],
)
def test_what_cannot_be_read_stops_the_node(data: bytes, words: str) -> None:
    files = MemoryFiles()
    note = FollowingFile(DIRECTORY, files)
    files.make_directory(note.path.parent)
    files.atomic_replace(note.path, data)
    with pytest.raises(StateFileError, match=r"following\.json") as caught:
        note.load()
    assert words in str(caught.value)


def test_a_full_disk_changes_nothing() -> None:
    files = MemoryFiles()
    note = FollowingFile(DIRECTORY, files)
    note.save(Following("shop", "broker-a"))
    files.capacity = files.used_bytes
    with pytest.raises(DiskFullError):
        note.save(Following("shop", "broker-a", TakenOver(1, 2)))
    files.capacity = 1 << 30
    assert note.load() == Following("shop", "broker-a")

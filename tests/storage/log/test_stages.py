"""Bytes on their way through the stages: joined where they touch, kept where a write fails."""

import pytest

from tandemlog_server.storage.log.stages import JOINED_BYTES, WriteBuffer


def test_neighbours_are_joined_up_to_a_files_end() -> None:
    buffer = WriteBuffer()
    for offset, data in ((90, b"aaaa"), (94, b"bbbbbb"), (100, b"cc"), (200, b"dd"), (202, b"e")):
        buffer.add(offset, data)
    assert list(buffer.drain(100)) == [(90, b"aaaabbbbbb"), (100, b"cc"), (200, b"dde")]
    assert len(buffer) == 0


def test_what_is_joined_stays_bounded() -> None:
    buffer = WriteBuffer()
    piece = bytes(JOINED_BYTES // 2)
    for number in range(5):
        buffer.add(number * len(piece), piece)
    assert [len(data) for _, data in buffer.drain(1 << 30)] == [
        JOINED_BYTES,
        JOINED_BYTES,
        JOINED_BYTES // 2,
    ]


def test_what_was_not_written_stays() -> None:
    buffer = WriteBuffer()
    buffer.add(0, b"first")
    buffer.add(50, b"second")

    def write() -> None:
        for offset, _ in buffer.drain(100):
            if offset == 50:
                raise OSError("no")

    with pytest.raises(OSError, match="no"):
        write()
    assert list(buffer.drain(100)) == [(50, b"second")]


def test_it_can_be_emptied() -> None:
    buffer = WriteBuffer()
    buffer.add(0, b"x")
    buffer.clear()
    assert list(buffer.drain(100)) == []

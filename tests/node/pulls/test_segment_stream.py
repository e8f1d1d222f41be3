"""Raw bytes of the log, below the confirm offset, never across a file."""

from typing import Any

import pytest

from tandemlog.v1 import broker_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.pulls.read_turns import ReadTurns
from tandemlog_server.node.pulls.segment_stream import MAX_CHUNK_BYTES, SegmentStream
from tandemlog_server.storage.errors import OffsetOutOfRangeError
from tandemlog_server.storage.positions import Position

FILE = 100


class FakeLog:
    """A log of files of 100 bytes that begins at 200 and whose bytes are their positions."""

    min_offset = 200
    file_size = FILE

    def read(self, offset: int, max_bytes: int) -> memoryview:
        end = min(offset + max_bytes, offset - offset % FILE + FILE)
        return memoryview(bytes(each % 251 for each in range(offset, end)))


async def fetch(offset: int, **fields: int) -> list[broker_pb2.SegmentChunk]:
    log: Any = FakeLog()
    stream = SegmentStream(log, Position("confirmed", 450), ReadTurns(1, 1 << 20), 64)
    request = broker_pb2.FetchSegmentRangeRequest(physical_offset=offset, **fields)
    return [
        broker_pb2.SegmentChunk.FromString(each) async for each in stream.chunks(request, Caller())
    ]


async def test_chunks_come_in_order_up_to_the_confirm_offset() -> None:
    chunks = await fetch(210)
    assert [(each.physical_offset, len(each.data)) for each in chunks] == [
        (210, 64),
        (274, 26),
        (300, 64),
        (364, 36),
        (400, 50),
    ]
    data = b"".join(each.data for each in chunks)
    assert data == bytes(each % 251 for each in range(210, 450))
    assert {(each.min_offset, each.confirm_offset) for each in chunks} == {(200, 450)}
    assert chunks[0].commit_log_file_size == FILE


async def test_length_and_chunk_size_are_the_callers() -> None:
    chunks = await fetch(200, length=30, chunk_bytes=20)
    assert [len(each.data) for each in chunks] == [20, 10]
    assert sum(len(each.data) for each in await fetch(440, length=1000)) == 10


async def test_the_end_of_the_log_is_one_empty_chunk() -> None:
    (chunk,) = await fetch(450)
    assert (chunk.data, chunk.confirm_offset) == (b"", 450)


@pytest.mark.parametrize("offset", [0, 199, 451])
async def test_outside_the_log(offset: int) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        await fetch(offset)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"length": -1}, "length"),
        ({"chunk_bytes": -1}, "chunk_bytes"),
        ({"chunk_bytes": MAX_CHUNK_BYTES + 1}, "chunk_bytes"),
    ],
)
async def test_bad_numbers(fields: dict[str, int], field: str) -> None:
    with pytest.raises(RequestRefusedError) as raised:
        await fetch(200, **fields)
    assert raised.value.field == field

"""Raw bytes of the commit log below the confirm offset, for readers without access to the node's
disk.

Chunks come in order, end at the confirm offset of the moment of the request and never cross a log
file, so a reader can write each one to the file it belongs to. A chunk is read when the one before
has been sent.
"""

from collections.abc import AsyncIterator
from functools import partial

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.storage.errors import OffsetOutOfRangeError
from tandemlog_server.storage.log.commit_log import CommitLog
from tandemlog_server.storage.positions import Position

from ..access.caller import Caller
from ..error_status import RequestRefusedError
from .raw_messages import segment_chunk
from .read_turns import ReadTurns

MAX_CHUNK_BYTES = 8 << 20


class SegmentStream:
    """See the module. `confirmed` is where the log ends for readers; chunk sizes are in bytes."""

    def __init__(
        self, log: CommitLog, confirmed: Position, turns: ReadTurns, chunk_bytes: int
    ) -> None:
        self._log = log
        self._confirmed = confirmed
        self._turns = turns
        self._chunk_bytes = chunk_bytes

    async def chunks(
        self, request: broker_pb2.FetchSegmentRangeRequest, caller: Caller
    ) -> AsyncIterator[bytes]:
        """Encoded SegmentChunks, at least one, empty if nothing was asked for.

        Raises OffsetOutOfRangeError outside the log, RequestRefusedError for bad numbers, and
        where no turn to read comes.
        """
        if request.length < 0 or not 0 <= request.chunk_bytes <= MAX_CHUNK_BYTES:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"length must not be negative, chunk_bytes must be 0..{MAX_CHUNK_BYTES}",
                field="length" if request.length < 0 else "chunk_bytes",
                limit=MAX_CHUNK_BYTES,
                actual=request.length if request.length < 0 else request.chunk_bytes,
            )
        chunk_bytes = request.chunk_bytes or self._chunk_bytes
        at, end = request.physical_offset, self._confirmed.value
        self._check_inside(at, end)
        if request.length:
            end = min(end, at + request.length)
        while True:
            size = max(0, min(chunk_bytes, end - at))
            chunk, length = await self._turns.run(
                caller,
                partial(self._chunk, at, size),
                room=size,
                size_of=lambda answer: len(answer[0]),
            )
            yield chunk
            self._turns.release(caller)
            at += length
            if at >= end:
                return

    def _chunk(self, offset: int, size: int) -> tuple[bytes, int]:
        """The encoded chunk at `offset`, and the bytes of log in it. Runs in a reader thread."""
        data = self._read(offset, size) if size else b""
        small = broker_pb2.SegmentChunk(
            physical_offset=offset,
            min_offset=self._log.min_offset,
            confirm_offset=self._confirmed.value,
            commit_log_file_size=self._log.file_size,
        )
        return segment_chunk(small, [data]), len(data)

    def _read(self, offset: int, size: int) -> bytes | memoryview:
        # looked at again for each chunk: retention may have dropped the file meanwhile
        self._check_inside(offset, self._confirmed.value)
        data = self._log.read(offset, size)
        if not len(data):
            raise OffsetOutOfRangeError(offset, self._log.min_offset, self._confirmed.value)
        return data

    def _check_inside(self, offset: int, end: int) -> None:
        if not self._log.min_offset <= offset <= end:
            raise OffsetOutOfRangeError(offset, self._log.min_offset, end)

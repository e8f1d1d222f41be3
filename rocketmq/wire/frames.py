"""The stream of log bytes between a RocketMQ master and its slave (DefaultHAService), as pure code.

    slave ──▶ master    | i64 offset |                     the first: send from here on
                                                           later ones: I hold everything below
    master ──▶ slave    | i64 offset | i32 size | bytes |  the log from `offset` on
                        | i64 offset | i32 0 |             a heartbeat: the next byte's offset

All numbers are big-endian. Frames follow each other without a gap, and none crosses a log file.
Nothing on this wire names a cluster, a node or a term: who is at the other end, and whether its log
is the same, has to be found out in another way (follow/comparison.py).
"""

from dataclasses import dataclass
from struct import Struct

from tandemlog_server.ha.errors import ProtocolError

OFFSET = Struct(">q")
HEADER = Struct(">qi")
FRAME_BYTES = 32 << 10
"""The log bytes of a frame that a broker sends by default (haTransferBatchSize)."""
MAX_FRAME_BYTES = 16 << 20
"""More than any broker is configured to send: a larger size shows that the peer is no HA port."""
BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive log bytes from `offset` on; none if only a heartbeat came."""

    offset: int
    data: bytes


class FrameReader:
    """A master's stream, taken apart: receive into `room()`, then say how much with `received`.

    The first frame must begin at `expected`, each further one where the last has ended.
    """

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return memoryview(self._buffer)[self._filled :]

    def received(self, count: int) -> Run | None:
        """`count` bytes came into `room()`. Returns the log bytes of all whole frames, None if
        there are none. Raises ProtocolError for bytes that no RocketMQ master sends."""
        end = self._filled + count
        view = memoryview(self._buffer)
        start, at = self.expected, 0
        parts: list[memoryview] = []
        missing = 0
        while end - at >= HEADER.size:
            offset, size = HEADER.unpack_from(view, at)
            self._check(offset, size)
            missing = at + HEADER.size + size - end
            if missing > 0:
                break
            parts.append(view[at + HEADER.size : at + HEADER.size + size])
            self.expected += size
            at += HEADER.size + size
        run = Run(start, b"".join(parts)) if parts else None
        self._keep(view, at, end, max(missing, 0))
        return run

    def feed(self, data: bytes) -> list[Run]:
        """As `received`, for bytes that lie elsewhere."""
        runs = []
        while data:
            room = self.room()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            run = self.received(count)
            if run is not None:
                runs.append(run)
        return runs

    def _check(self, offset: int, size: int) -> None:
        if not 0 <= size <= MAX_FRAME_BYTES:
            raise ProtocolError(
                f"a frame of {size} bytes came, which no RocketMQ HA port sends: is it the HA port "
                "of a master?"
            )
        if offset != self.expected:
            raise ProtocolError(
                f"log bytes at {offset} came, but {self.expected} was asked for: is it the HA port "
                "of a RocketMQ master?"
            )

    def _keep(self, view: memoryview, at: int, end: int, missing: int) -> None:
        """The beginning of a frame moves to the front, and gets room for the rest of it."""
        self._filled = end - at
        needed = self._filled + missing
        if needed >= len(self._buffer):
            larger = bytearray(needed + BUFFER_BYTES)
            larger[: self._filled] = view[at:end]
            self._buffer = larger
        elif at:
            view[: self._filled] = view[at:end]


class OffsetReader:
    """A slave's stream, taken apart: the offsets that it sends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """The offsets that are whole, in order. Raises ProtocolError for one below 0."""
        data = self._rest + data
        count = len(data) // OFFSET.size
        self._rest = data[count * OFFSET.size :]
        offsets = [offset for (offset,) in OFFSET.iter_unpack(data[: count * OFFSET.size])]
        for offset in offsets:
            if offset < 0:
                raise ProtocolError(f"a slave of RocketMQ sent the offset {offset}")
        return offsets


def encode_offset(offset: int) -> bytes:
    """What a slave sends: from where on it wants the log, later what it holds."""
    return OFFSET.pack(offset)


def encode_header(offset: int, size: int) -> bytes:
    """What a master sends before `size` bytes of its log; 0 bytes are a heartbeat."""
    return HEADER.pack(offset, size)

"""The frames of a data connection: a plain TCP connection beside gRPC, for puts and pulls.

    node   ─▶  magic (8) | key (16)                              once, before anything else
    client ─▶  frames: TOKEN, PULL, CANCEL, APPEND
    node   ─▶  frames: ANSWER, STATUS

    frame      size u32 | call u32 | kind u8 | 0 0 0 | payload of `size` bytes       little-endian

Calls have numbers that the client chooses. PULL is a call, carries an encoded PullRequest, and is
answered by one encoded PullResponse, in any order; CANCEL ends one, and has no answer. All APPEND
of a connection are one call, a stream: each carries an encoded AppendRequest, and is answered by an
AppendResponse, in their order. STATUS ends a call, with the code and the text of a gRPC status; the
connection ends with its stream. TOKEN carries the value of `authorization` for the calls that begin
behind it.

The key is the one that the node has told by gRPC (DescribeClusterResponse.data_key). A client that
came to another program, or another node, by an address that is mapped somewhere, notices it before
it has sent anything.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from ..lazy import HAVE_NUMPY, lazy

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = b"TLDATA1\n"
KEY_BYTES: Final = 16
GREETING_BYTES: Final = len(MAGIC) + KEY_BYTES

HEAD: Final = struct.Struct("<IIB3x")
_CODE: Final = struct.Struct("<I")
LAST_CALL: Final = (1 << 32) - 1

MAX_TOKEN_BYTES: Final = 16 << 10
MAX_PULL_BYTES: Final = 256 << 10
"""Of an encoded request; a client makes larger ones by gRPC."""
_LARGE: Final = 64 << 10


class DataFrameError(Exception):
    """Bytes that are no frame of a data connection, or not here; the message says why. `call` is
    the one that they would belong to, `too_large` whether only their number is wrong."""

    def __init__(self, reason: str, call: int = 0, *, too_large: bool = False) -> None:
        super().__init__(reason)
        self.call, self.too_large = call, too_large


class Kind(IntEnum):
    TOKEN = 1
    PULL = 2
    CANCEL = 3
    ANSWER = 4
    STATUS = 5
    APPEND = 6


_MOST: Final = {Kind.TOKEN: MAX_TOKEN_BYTES, Kind.PULL: MAX_PULL_BYTES, Kind.CANCEL: 0}

FROM_CLIENT: Final = frozenset({Kind.TOKEN, Kind.PULL, Kind.CANCEL, Kind.APPEND})
FROM_NODE: Final = frozenset({Kind.ANSWER, Kind.STATUS})


@dataclass(frozen=True, slots=True)
class Frame:
    call: int
    kind: Kind
    payload: Buffer


def greeting(key: bytes) -> bytes:
    """What a node sends first."""
    return MAGIC + key


def frame(call: int, kind: Kind, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload), call, kind) + payload


def head(call: int, kind: Kind, size: int) -> bytes:
    """In front of a payload of `size` bytes, which is sent by itself."""
    return HEAD.pack(size, call, kind)


def status_frame(call: int, code: int, text: str) -> bytes:
    return frame(call, Kind.STATUS, _CODE.pack(code) + text.encode())


def read_status(payload: Buffer) -> tuple[int, str]:
    """Code and text of a STATUS. Raises DataFrameError."""
    if len(payload) < _CODE.size:
        raise DataFrameError(f"a status of {len(payload)} bytes has no code")
    return _CODE.unpack_from(payload)[0], bytes(payload[_CODE.size :]).decode(errors="replace")


def read_head(data: Buffer, kinds: frozenset[Kind], most: int) -> tuple[int, int, Kind]:
    """Size, call and kind of the frame with which `data` begins (12 bytes). Raises DataFrameError
    if its kind is not in `kinds`, or if it is larger than `most` bytes or than its kind may be."""
    size, call, kind = HEAD.unpack_from(data)
    if kind not in kinds:
        raise DataFrameError(
            f"a frame of kind {kind}, which is unknown or does not belong here", call
        )
    kind = Kind(kind)
    most = min(most, _MOST.get(kind, most))
    if size > most:
        what = f"a frame {kind.name} of {size} bytes, the limit is {most}"
        raise DataFrameError(what, call, too_large=True)
    return size, call, kind


class FrameReader:
    """The frames in what the other side sends, in whatever parts it comes. `most` is how large the
    next one may be, in bytes of its payload.

    What was received is fed. While a large frame is being received there is `room` for its rest;
    to receive into that, and to say how much by `received`, saves two copies."""

    def __init__(self, kinds: frozenset[Kind], most: int) -> None:
        self._kinds = kinds
        self.most = most
        self._held = bytearray()
        self._large: _Large | None = None

    @property
    def within(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._held) or self._large is not None

    @property
    def announced(self) -> int:
        """Bytes of the payload of the frame that has begun, as its head says; 0 without one."""
        if self._large is not None:
            return len(self._large.payload)
        return HEAD.unpack_from(self._held)[0] if len(self._held) >= HEAD.size else 0

    @property
    def room(self) -> memoryview | None:
        """For the rest of a large frame; None while there is none."""
        return None if self._large is None else self._large.room

    def received(self, size: int) -> Iterator[Frame]:
        """The frame that ends with `size` bytes in `room`, if it does."""
        large = self._large
        assert large is not None
        large.filled += size
        if large.filled == len(large.payload):
            self._large = None
            yield Frame(large.call, large.kind, large.payload)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that end with `data`; take all of them. Raises DataFrameError."""
        if self._large is not None:
            room = self._large.room
            size = min(len(room), len(data))
            room[:size] = data[:size]
            yield from self.received(size)
            data = data[size:]
        held = self._held
        held += data
        while len(held) >= HEAD.size:
            size, call, kind = read_head(held, self._kinds, self.most)
            end = HEAD.size + size
            if len(held) < end:
                if size >= _LARGE:
                    self._large = _Large(call, kind, size, held)
                    held.clear()
                return
            with memoryview(held) as view:
                payload = bytes(view[HEAD.size : end])
            del held[:end]
            yield Frame(call, kind, payload)


class _Large:
    """A frame of `size` bytes of which `held` has the head and the first ones."""

    def __init__(self, call: int, kind: Kind, size: int, held: bytearray) -> None:
        self.call = call
        self.kind = kind
        # Not touched, and so no memory yet: what is announced may never come. A plain client, which
        # has no numpy, asked for what comes, and trusts its node with the memory.
        self.payload = np.empty(size, np.uint8).data if HAVE_NUMPY else memoryview(bytearray(size))
        self.filled = len(held) - HEAD.size
        self.payload[: self.filled] = held[HEAD.size :]

    @property
    def room(self) -> memoryview:
        return self.payload[self.filled :]

"""A table sent in pieces: split on one side, put together on the other.

    table, version 7   ──▶  piece 0 │ piece 1 │ ... │ piece n, last   ──▶  table, version 7
                            each a frame of at most PIECE_BYTES

So a table of any size fits into frames, and log bytes are sent between the pieces. One table of a
kind is in transfer at a time, and its pieces come in order: anything else is the peer's fault and
ends the stream. The receiver's memory for unfinished tables is bounded for all kinds together.
"""

from dataclasses import dataclass

from ..errors import ProtocolError

PIECE_BYTES = 256 << 10
MAX_TABLE_BYTES = 256 << 20
"""Of all tables that are under way to one slave at a time; a larger table is not sent."""
MAX_KINDS = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of one table; the one with `last` ends it."""

    kind: str
    version: int
    index: int
    last: bool
    data: bytes


def cut_up(kind: str, version: int, data: bytes, size: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of a table, at least one. Raises ValueError if it is above MAX_TABLE_BYTES."""
    if len(data) > MAX_TABLE_BYTES:
        raise ValueError(f"table {kind!r} has {len(data)} bytes, the limit is {MAX_TABLE_BYTES}")
    starts = range(0, max(len(data), 1), size)
    return [
        Piece(kind, version, index, start == starts[-1], data[start : start + size])
        for index, start in enumerate(starts)
    ]


class Assembly:
    """The tables that come to one receiver; for one stream."""

    def __init__(self, max_bytes: int = MAX_TABLE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: dict[str, list[Piece]] = {}
        self._bytes = 0

    def add(self, piece: Piece) -> bytes | None:
        """The whole table with its last piece, None before. Raises ProtocolError for a piece out
        of turn, and for more than this receiver holds."""
        before = self._pieces.get(piece.kind, [])
        if piece.index != len(before) or (before and before[0].version != piece.version):
            raise ProtocolError(
                f"piece {piece.index} of table {piece.kind!r}, version {piece.version}, is out of "
                f"order: {len(before)} pieces of it have arrived"
            )
        if self._bytes + len(piece.data) > self._max_bytes:
            raise ProtocolError(
                f"table {piece.kind!r} is larger than the {self._max_bytes} bytes that may be in "
                "transit"
            )
        if not piece.last:
            if not piece.data:
                raise ProtocolError(f"piece {piece.index} of table {piece.kind!r} is empty")
            if not before and len(self._pieces) >= MAX_KINDS:
                raise ProtocolError(f"more than {MAX_KINDS} tables are in transit at a time")
            self._pieces.setdefault(piece.kind, []).append(piece)
            self._bytes += len(piece.data)
            return None
        self._pieces.pop(piece.kind, None)
        self._bytes -= sum(len(each.data) for each in before)
        return b"".join([*(each.data for each in before), piece.data])

"""The messages of a large batch, in pieces whose fields are decoded together.

    rows of the batch   0 .. 15 | 16 .. 271 | 272 .. 527 | ...
                        a piece   a piece     a piece

A field that is asked of one message is decoded for its whole piece, by columns. The fields that the
messages of one piece were asked for are in the slots of the next piece's messages before the caller
gets them: a slot costs a tenth of a property. The first piece is short, since it only shows which
fields those are.

A record with a fault is decoded alone, by received_message.py, when a field of it is accessed: its
error is not that of its piece. Compressed records are decoded alone too.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...format.columns.fields import Properties, bodies, bytes_under, properties
from ...format.columns.headers import HeaderColumns
from ...format.constants import KEYS, TAGS
from ...format.record.properties import split_keys
from .received_message import FIRST_ROWS, ReceivedMessage

_ROWS: Final = 256
_BYTES: Final = 1 << 20
"""Of a piece, about: few enough to stay in the processor's cache."""


def pieces(
    records: bytes | memoryview, sizes: NDArray[np.uint32], headers: HeaderColumns
) -> Iterator[Iterator[ReceivedMessage]]:
    """The messages of `records`, a piece at a time; a piece is to be exhausted before the next one
    is asked for."""
    data, base = bytes_under(records)
    count = len(sizes)
    most = max(min(_ROWS, _BYTES * count // max(len(records), 1)), 1)
    begin, end = 0, min(FIRST_ROWS, most, count)
    asked: set[str] = set()
    while begin < count:
        piece = _Piece(records, data, base, headers, slice(begin, end))
        asked = piece.asked = set(asked)
        yield piece.messages()
        begin, end = end, min(end + most, count)


class _Piece:
    """See the module. `asked` are names of fields."""

    __slots__ = (
        "_alone", "_base", "_columns", "_data", "_headers", "_properties", "_records", "_rows",
        "asked",
    )  # fmt: skip

    def __init__(
        self,
        records: bytes | memoryview,
        data: bytes,
        base: int,
        headers: HeaderColumns,
        rows: slice,
    ) -> None:
        """The records begin at `base` of `data`."""
        self._records = records
        self._data = data
        self._base = base
        self._headers = headers
        self._rows = rows
        self._columns: dict[str, list[Any]] = {}
        self._alone: list[int] = []
        self._properties: Properties | None = None
        self.asked: set[str] = set()

    def messages(self) -> Iterator[ReceivedMessage]:
        """With what is `asked` in their slots."""
        rows = range(self._rows.stop - self._rows.start)
        if not self.asked:
            return map(_PieceMessage, repeat(self), rows)
        messages = list(map(_PieceMessage, repeat(self), rows))
        for name in self.asked:
            fill, values = _FILL[name], self._column(name)
            if self._alone:
                for row in sorted(set(rows).difference(self._alone)):
                    fill(messages[row], values[row])
            else:
                deque(map(fill, messages, values), maxlen=0)
        return iter(messages)

    def place(self, row: int) -> tuple[bytes | memoryview, int, int]:
        """Buffer, position in it and size of a record."""
        row += self._rows.start
        headers = self._headers
        return self._records, int(headers.positions[row]), int(headers.sizes[row])

    def field(self, name: str, message: "_PieceMessage") -> Any:
        """What `message` has there; raises what ReceivedMessage raises."""
        self.asked.add(name)
        values = self._column(name)
        if message.row in self._alone:
            return getattr(super(_PieceMessage, message), name)
        return values[message.row]

    def _column(self, name: str) -> list[Any]:
        """A value for each row; that of a row that is to be decoded alone is not used."""
        values = self._columns.get(name)
        if values is None:
            values = self._columns[name] = self._decoded(name)
        return values

    def _decoded(self, name: str) -> list[Any]:
        if name == "body":
            values = bodies(self._data, self._base, self._headers, self._rows)
            self._alone = [row for row, body in enumerate(values) if body is None]
            return values
        if self._properties is None:
            self._column("body")  # finds the records that hold together
            self._properties = properties(self._data, self._base, self._headers, self._rows)
        if name == "tags":
            return self._properties.column(TAGS)
        if name == "keys":
            return [
                [] if keys is None else split_keys(keys) if " " in keys else [keys]
                for keys in self._properties.column(KEYS)
            ]
        return self._properties.rows()


class _PieceMessage(ReceivedMessage):
    """A row of a piece. A slot without a value is filled when it is asked for."""

    __slots__ = ("_piece", "body", "keys", "properties", "row", "tags")

    body: bytes
    keys: list[str]
    properties: dict[str, str]
    tags: str | None

    def __init__(self, piece: _Piece, row: int) -> None:
        self._piece = piece
        self.row = row

    def __getattr__(self, name: str) -> Any:
        """Only called for a slot without a value."""
        if name in _FILL:
            value = self._piece.field(name, self)
            setattr(self, name, value)
            return value
        if name not in ReceivedMessage.__slots__:
            raise AttributeError(f"a message has no {name!r}", name=name, obj=self)
        super().__init__(*self._piece.place(self.row))
        return getattr(self, name)


_FILL: Final[dict[str, Callable[[_PieceMessage, Any], None]]] = {
    name: vars(_PieceMessage)[name].__set__ for name in ("body", "keys", "properties", "tags")
}
"""The fields that are decoded by columns, and how each is put into its slot."""

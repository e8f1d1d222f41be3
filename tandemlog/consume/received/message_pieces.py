"""The messages of a large batch, in pieces whose fields are decoded together.

    rows of the batch   0 .. 15 | 16 .. 271 | 272 .. 527 | ...
                        a piece   a piece     a piece

A field that is asked of one message is decoded for its whole piece, by columns. The fields that the
messages of one piece were asked for are in the slots of the next piece's messages before the caller
gets them: a slot costs a tenth of a property. Each set of such fields has a class of its own, whose
`__init__` puts them there: that costs a third of filling slots one by one. The first piece is
short, since it only shows which fields those are.

A record with a fault is decoded alone, by received_message.py, when a field of it is accessed: its
error is not that of its piece. So is a compressed body.

A message keeps its piece, and with it the columns of its piece and the records of its batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...format.columns.fields import Properties, RecordFields
from ...format.columns.headers import HeaderColumns
from ...format.constants import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY
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
    fields = RecordFields(records, headers)
    count = len(sizes)
    most = max(min(_ROWS, _BYTES * count // max(len(records), 1)), 1)
    begin, end = 0, min(FIRST_ROWS, most, count)
    asked: set[str] = set()
    while begin < count:
        piece = _Piece(records, headers, fields, slice(begin, end))
        asked = piece.asked = set(asked)
        yield piece.messages()
        begin, end = end, min(end + most, count)


class _Piece:
    """See the module. `asked` are names of fields."""

    __slots__ = (
        "_alone", "_columns", "_faulty", "_fields", "_headers", "_messages", "_properties",
        "_records", "_rows", "asked",
    )  # fmt: skip

    def __init__(
        self,
        records: bytes | memoryview,
        headers: HeaderColumns,
        fields: RecordFields,
        rows: slice,
    ) -> None:
        self._records = records
        self._headers = headers
        self._fields = fields
        self._rows = rows
        self._columns: dict[str, list[Any]] = {}
        self._alone: dict[str, frozenset[int]] = {}
        self._faulty: frozenset[int] = frozenset()
        self._messages: dict[int, ReceivedMessage] = {}
        self._properties: Properties | None = None
        self.asked: set[str] = set()

    def messages(self) -> Iterator[ReceivedMessage]:
        """With what is `asked` in their slots."""
        rows = range(self._rows.stop - self._rows.start)
        names = tuple(sorted(self.asked))
        if not names:
            return map(_PieceMessage, repeat(self), rows)
        columns = [self.column(name) for name in names]
        messages = map(_class_with(names), repeat(self), rows, *columns)
        alone = frozenset[int]().union(*map(self._alone_in, names))
        if not alone:
            return messages
        return (
            _PieceMessage(self, row) if row in alone else message
            for row, message in enumerate(messages)
        )

    def field(self, name: str, row: int) -> Any:
        """What the message of `row` has there; raises what ReceivedMessage raises."""
        if name in _DECODED:
            self.asked.add(name)
            values = self.column(name)
            if row not in self._alone_in(name):
                return values[row]
        return getattr(self._message(row), name)

    def _message(self, row: int) -> ReceivedMessage:
        """One that decodes its record alone; kept, since it keeps what it has decoded."""
        message = self._messages.get(row)
        if message is None:
            at, headers = row + self._rows.start, self._headers
            position, size = int(headers.positions[at]), int(headers.sizes[at])
            message = self._messages[row] = ReceivedMessage(self._records, position, size)
        return message

    def column(self, name: str) -> list[Any]:
        """A value for each row; that of a row that is to be decoded alone is not used."""
        values = self._columns.get(name)
        if values is None:
            values = self._columns[name] = _DECODED[name](self)
        return values

    def _alone_in(self, name: str) -> frozenset[int]:
        """The rows whose field is to be decoded alone."""
        rows = self._alone.get(name)
        if rows is None:
            rows = self._alone[name] = self._found_alone(name)
        return rows

    def _found_alone(self, name: str) -> frozenset[int]:
        if name in _OF_THE_HEAD:
            return self._rows_in(self._fields.torn)
        self.column("body")  # finds the records with a fault
        return self._faulty | self._rows_in(self._fields.packed if name == "body" else None)

    def _rows_in(self, mask: NDArray[np.bool_] | None) -> frozenset[int]:
        if mask is None:
            return frozenset()
        return frozenset(np.flatnonzero(mask[self._rows]).tolist())

    # the columns

    def bodies(self) -> list[bytes]:
        values, faulty = self._fields.bodies(self._rows)
        self._faulty = frozenset(faulty)
        return values

    def numbers(self, name: str) -> list[int]:
        return self._fields.numbers(name, self._rows)

    def topics(self) -> list[str]:
        return self._fields.topics(self._rows)

    def properties(self) -> list[dict[str, str]]:
        return self._all_properties().rows()

    def property(self, name: str) -> list[str | None]:
        return self._all_properties().column(name)

    def keys(self) -> list[list[str]]:
        texts: list[Any] = self.property(KEYS)
        try:
            several = " " in "".join(texts)
        except TypeError:
            several = True  # or none at all
        if several:
            return [split_keys(text or "") for text in texts]
        return [[text] for text in texts]

    def _all_properties(self) -> Properties:
        if self._properties is None:
            self._properties = self._fields.properties(self._rows)
        return self._properties


_OF_THE_HEAD: Final = frozenset(("physical_offset", "queue_id", "queue_offset"))
"""Fields that ReceivedMessage reads without a look at the rest of the record."""


def _numbers(name: str) -> Callable[[_Piece], list[int]]:
    return lambda piece: piece.numbers(name)


def _property(name: str) -> Callable[[_Piece], list[str | None]]:
    return lambda piece: piece.property(name)


_DECODED: Final[dict[str, Callable[[_Piece], list[Any]]]] = {
    "body": _Piece.bodies,
    "keys": _Piece.keys,
    "properties": _Piece.properties,
    "sharding_key": _property(SHARDING_KEY),
    "tags": _property(TAGS),
    "topic": _Piece.topics,
    "uniq_key": _property(UNIQ_KEY),
    **{
        name: _numbers(name)
        for name in (
            "born_timestamp", "flag", "physical_offset", "queue_id", "queue_offset",
            "reconsume_times", "store_timestamp",
        )
    },
}  # fmt: skip
"""The fields that are decoded by columns, and how."""
_DECODED_ALONE: Final = ("raw", "record", "size")
"""All others are made of these."""


class _PieceMessage(ReceivedMessage):
    """A row of a piece, whose fields are looked up there. It has no `__getattr__`, which would make
    every access to a slot slower."""

    __slots__ = ("_piece", "row")

    def __init__(self, piece: _Piece, row: int) -> None:
        self._piece = piece
        self.row = row


def _looked_up(name: str) -> property:
    def value(message: _PieceMessage) -> Any:
        return message._piece.field(name, message.row)

    return property(value, doc=getattr(ReceivedMessage, name).__doc__)


for _name in (*_DECODED, *_DECODED_ALONE):
    setattr(_PieceMessage, _name, _looked_up(_name))


@lru_cache(maxsize=256)
def _class_with(names: tuple[str, ...]) -> type[ReceivedMessage]:
    """A _PieceMessage with these fields in slots, which its `__init__` takes behind the others."""
    # written by dataclasses, as a function with so many arguments and assignments
    written = make_dataclass("Written", ["_piece", "row", *names])
    members: dict[str, Any] = {
        "__slots__": names,
        "__init__": vars(written)["__init__"],
        "__module__": __name__,
    }
    return type("ReceivedMessage", (_PieceMessage,), members)

"""Values that a search by columns finds are those of the plain decoder."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from helpers.record_strategies import NAMES
from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.columns.property_columns import ValueColumn
from tandemlog.format.record.properties import decode_properties

SEARCHED = [name.encode() for name in NAMES]

Find = Callable[[bytes, NDArray[np.int64], NDArray[np.int64], Sequence[bytes]], list[ValueColumn]]


def check_properties(
    find: Find, strings: list[bytes], before: bytes = b"", after: bytes = b""
) -> None:
    column = ByteColumn.of(strings)
    buffer = before + column.data.tobytes() + after
    found = find(buffer, column.starts + len(before), column.lengths, SEARCHED)
    plain = [decode_properties(each) for each in strings]
    for name, (starts, lengths) in zip(NAMES, found, strict=True):
        values = [
            buffer[start : start + length].decode("utf-8", "replace") if length else None
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]
        assert values == [each.get(name) for each in plain]
        assert ((starts == -1) == (lengths == 0)).all()

"""What callers have as a column, brought to one form: format's ByteColumn, bytes end to end.

From Arrow arrays and numpy arrays without a Python object per value, and without importing
pyarrow: an Arrow array exposes its buffers. Lists of bytes or text are joined.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgumentError
from ..format.arrays.byte_column import ByteColumn
from ..format.arrays.ragged import offsets_of
from .arrow_shapes import ArrowArray, ArrowChunks


def byte_column(values: Any, name: str) -> ByteColumn:
    """The column in `values`: an Arrow binary or string array (also chunked or dictionary), a
    numpy array (`S`, `U`, object, or u1[n, width]), a pair (u1 data, offsets[n+1]), or a sequence
    of bytes or text. Raises InvalidArgumentError naming `name`."""
    if isinstance(values, ByteColumn):
        return values
    if isinstance(values, ArrowChunks):
        return _from_chunks(values, name)
    if isinstance(values, ArrowArray):
        return _from_arrow(values, name)
    if isinstance(values, np.ndarray):
        return _from_numpy(values, name)
    if isinstance(values, tuple) and len(values) == 2 and isinstance(values[1], np.ndarray):
        return _from_pair(values[0], values[1], name)
    if isinstance(values, str | bytes):
        raise InvalidArgumentError(f"{name}: a sequence is needed, not one value", field=name)
    return _from_sequence(values, name)


def is_column(values: Any) -> bool:
    """Whether it is one of these, and no sequence."""
    return isinstance(values, np.ndarray | ArrowArray | ArrowChunks) or (
        isinstance(values, tuple) and len(values) == 2 and isinstance(values[1], np.ndarray)
    )


def constant_column(value: str | bytes, count: int) -> ByteColumn:
    """The same value `count` times, stored once per message."""
    data = np.frombuffer(value.encode() if isinstance(value, str) else value, np.uint8)
    offsets = np.arange(count + 1, dtype=np.int64) * len(data)
    return ByteColumn(np.tile(data, count), offsets)


@dataclass(frozen=True, slots=True)
class TopicColumn:
    """A topic for each of n rows: `names` each once, and `codes` i8[n], each row's place there."""

    names: list[str]
    codes: NDArray[np.int64]

    def rows(self, start: int, stop: int) -> "TopicColumn":
        return TopicColumn(self.names, self.codes[start:stop])


def topic_column(values: Any) -> TopicColumn:
    """The topics in `values`: an Arrow string array (dictionary-coded or not), a numpy array, or a
    sequence of text. Raises InvalidArgumentError for values that are null or not text."""
    if isinstance(values, str | bytes):
        raise InvalidArgumentError("topics: a topic for each row is needed", field="topics")
    if isinstance(values, ArrowChunks):
        values = values.combine_chunks()
    if isinstance(values, ArrowArray) and not isinstance(values, np.ndarray):
        if values.null_count:
            raise InvalidArgumentError(
                f"topics: {values.null_count} values are null", field="topics"
            )
        coded: Any = values
        if not str(values.type).startswith("dictionary"):
            coded = coded.dictionary_encode()
        return _checked_topics(
            coded.dictionary.to_pylist(), integer_column(coded.indices, "topics")
        )
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    names = list(dict.fromkeys(listed))
    places = {name: code for code, name in enumerate(names)}
    codes = np.fromiter(map(places.__getitem__, listed), np.int64, len(listed))
    return _checked_topics(names, codes)


def _checked_topics(names: list[Any], codes: NDArray[np.int64]) -> TopicColumn:
    texts = [name.decode() if isinstance(name, bytes) else name for name in names]
    for name in texts:
        if not isinstance(name, str):
            raise InvalidArgumentError(
                f"topics: text is needed, not {type(name).__name__}", field="topics"
            )
    return TopicColumn(texts, codes)


def integer_column(values: Any, name: str) -> NDArray[np.int64]:
    """i8[n] from any sequence of whole numbers, an Arrow array without nulls included."""
    if isinstance(values, ArrowChunks):
        values = values.combine_chunks()
    if isinstance(values, ArrowArray):
        if values.null_count:
            raise InvalidArgumentError(f"{name}: {values.null_count} values are null", field=name)
        values = np.asarray(values)
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"{name}: whole numbers are needed, not {array.dtype} of {array.ndim} dimensions",
            field=name,
        )
    return array.astype(np.int64)


def _from_sequence(values: Sequence[Any], name: str) -> ByteColumn:
    values = values if isinstance(values, list) else list(values)
    valid = None
    try:
        data = b"".join(values)
    except TypeError:
        there = [value is not None for value in values]
        valid = None if all(there) else np.array(there, bool)
        values = [_to_bytes(value, name) for value in values]
        data = b"".join(values)
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    return ByteColumn(np.frombuffer(data, np.uint8), offsets_of(lengths), valid)


def _to_bytes(value: Any, name: str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgumentError(
        f"{name}: bytes or text are needed, not {type(value).__name__}", field=name
    )


def _from_numpy(values: NDArray[Any], name: str) -> ByteColumn:
    kind = values.dtype.kind
    if kind == "u" and values.dtype.itemsize == 1 and values.ndim == 2:
        offsets = np.arange(len(values) + 1, dtype=np.int64) * values.shape[1]
        return ByteColumn(np.ascontiguousarray(values).reshape(-1), offsets)
    if values.ndim != 1 or kind not in "SUO":
        raise InvalidArgumentError(
            f"{name}: an array of bytes (S), text (U), objects or u1[n, width] is needed, not "
            f"{values.dtype} of {values.ndim} dimensions",
            field=name,
        )
    if kind != "S":
        return _from_sequence(values.tolist(), name)
    # numpy's own rule for S: zero bytes at the end are padding.
    lengths = np.strings.str_len(values).astype(np.int64)
    width = values.dtype.itemsize
    matrix = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)
    offsets = offsets_of(lengths)
    if (lengths == width).all():
        return ByteColumn(matrix.reshape(-1), offsets)
    return ByteColumn(matrix[np.arange(width) < lengths[:, None]], offsets)


def _from_pair(data: Any, offsets: NDArray[Any], name: str) -> ByteColumn:
    buffer = np.frombuffer(data, np.uint8)
    positions = offsets.astype(np.int64)
    if (
        positions.ndim != 1
        or len(positions) < 1
        or positions[0] < 0
        or positions[-1] > len(buffer)
        or (np.diff(positions) < 0).any()
    ):
        raise InvalidArgumentError(
            f"{name}: offsets must rise within the {len(buffer)} bytes of data", field=name
        )
    return ByteColumn(buffer, positions)


def _from_chunks(values: Any, name: str) -> ByteColumn:
    chunks = values.chunks
    if len(chunks) == 1:
        return byte_column(chunks[0], name)
    return byte_column(values.combine_chunks(), name)


_OFFSET_WIDTHS = {"binary": "<i4", "string": "<i4", "large_binary": "<i8", "large_string": "<i8"}


def _from_arrow(values: Any, name: str) -> ByteColumn:
    kind = str(values.type)
    if kind.startswith("dictionary"):
        return byte_column(values.dictionary_decode(), name)
    count, offset = len(values), values.offset
    buffers = values.buffers()
    valid = _valid(buffers[0], offset, count) if values.null_count else None
    if kind.startswith("fixed_size_binary"):
        width = values.type.byte_width
        offsets = (np.arange(count + 1, dtype=np.int64) + offset) * width
        return ByteColumn(_bytes_of(buffers[1]), offsets, valid)
    if kind not in _OFFSET_WIDTHS:
        raise InvalidArgumentError(
            f"{name}: an Arrow array of binary or string is needed, not {kind}", field=name
        )
    width = np.dtype(_OFFSET_WIDTHS[kind])
    if buffers[1] is None:
        return ByteColumn(np.zeros(0, np.uint8), np.zeros(count + 1, np.int64), valid)
    start = offset * width.itemsize
    offsets = np.frombuffer(buffers[1], width, count + 1, start).astype(np.int64)
    return ByteColumn(_bytes_of(buffers[2]), offsets, valid)


def _bytes_of(buffer: Any) -> NDArray[np.uint8]:
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _valid(bitmap: Any, offset: int, count: int) -> NDArray[np.bool_] | None:
    if bitmap is None:
        return None
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    valid: NDArray[np.bool_] = bits[offset : offset + count] == 1
    return valid

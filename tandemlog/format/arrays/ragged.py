"""Slices of many lengths as arrays: what numpy has no word for.

A window view of width w sees the bytes as overlapping items, one at every position:

    data     a b c d e f ...
    windows  [abc] [bcd] [cde] ...        item i is data[i : i + w], nothing is copied

Indexing it with positions copies w bytes per row at the price of one element, so rows of one
width cost about 10 ns each whatever the width. (`np.take` would copy the whole view first.)

Slices of different lengths are brought to few widths in two ways:

- padded rows, where reading too much does no harm: `length_classes` cuts the rows into groups
  that waste no more bytes than they hold;
- exact copies: a slice of w to w + r bytes, r up to w, is its first w bytes and its last r bytes,
  which may overlap. Nothing outside the slices is read or written. What lies between reading and
  writing is a piece that stays in the cache.
"""

import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]
Rows = slice | NDArray[np.int64]
Item = TypeVar("Item", bound=np.generic)

WORD: Final = 8
_ALWAYS_ALLOWED_WASTE: Final = 1 << 16
"""Padding below this costs less than a second round of calls."""
LONG_SLICE: Final = 4096
"""From here on the copying itself outweighs a Python statement per slice."""
_WIDEST_MASK: Final = 128
"""The masks for the padding of rows of one width take its square."""
_PIECE: Final = 1 << 17
"""Bytes on the way from one buffer to the other at a time: less than a core's own cache."""


def byte_array(buffer: Buffer) -> NDArray[np.uint8]:
    """`buffer` as u1[len], without a copy; writable if the buffer is."""
    if isinstance(buffer, np.ndarray):
        return buffer
    return np.frombuffer(buffer, np.uint8)


def windows(data: NDArray[np.uint8], width: int) -> NDArray[np.void]:
    """Every `width` bytes of `data`, overlapping: void items, one for each position at which a
    whole window fits. `data` must be contiguous and at least `width` long, `width` above 0."""
    return np.ndarray((len(data) - width + 1,), _item(width), data, 0, (1,))


@lru_cache(maxsize=256)
def _item(width: int) -> np.dtype[np.void]:
    return np.dtype((np.void, width))


def gather_rows(
    data: NDArray[np.uint8], starts: NDArray[np.int64], width: int
) -> NDArray[np.uint8]:
    """u1[n, width]: row i is data[starts[i] : starts[i] + width], zeros where that is past the
    end. Every start lies within 0 .. len(data); width is above 0."""
    if len(starts) == 0:
        return np.zeros((0, width), np.uint8)
    last = len(data) - width
    if last >= 0 and int(np.maximum.reduce(starts)) <= last:
        return windows(data, width)[starts].view(np.uint8).reshape(-1, width)
    # The few rows that reach past the end are read from a padded copy of the last bytes.
    tail_start = max(last + 1, 0)
    tail = np.concatenate((data[tail_start:], np.zeros(width, np.uint8)))
    late = (starts >= tail_start).nonzero()[0]
    if last >= 0:
        rows = windows(data, width)[np.minimum(starts, last)].view(np.uint8).reshape(-1, width)
    else:
        rows = np.empty((len(starts), width), np.uint8)
    late_starts = starts[late] - tail_start
    rows[late] = windows(tail, width)[late_starts].view(np.uint8).reshape(-1, width)
    return rows


class LengthClass(NamedTuple):
    """Rows that may be padded to one width, their greatest length."""

    rows: Rows
    width: int
    equal: bool
    """Whether all are of that length."""


def length_classes(lengths: NDArray[np.int64]) -> Iterator[LengthClass]:
    """Groups of rows that, padded, hold at most twice their bytes, or 64 KiB more. Together
    the groups are all rows, once."""
    if len(lengths) == 0:
        return
    everything: Rows = slice(None)
    pending: list[tuple[Rows, NDArray[np.int64]]] = [(everything, lengths)]
    while pending:
        rows, mine = pending.pop()
        # the methods max and sum take twice as long for few rows: they are Python functions
        width = int(np.maximum.reduce(mine))
        total = int(np.add.reduce(mine))
        waste = width * len(mine) - total
        if waste <= max(total, _ALWAYS_ALLOWED_WASTE):
            yield LengthClass(rows, width, waste == 0)
            continue
        long = mine * 2 > width
        for part in ((~long).nonzero()[0], long.nonzero()[0]):
            chosen = part if isinstance(rows, slice) else rows[part]
            pending.append((chosen, mine[part]))


def padded_classes(lengths: NDArray[np.int64], cells: int) -> Iterator[LengthClass]:
    """length_classes, in pieces of at most `cells` bytes once padded, so that what is made of
    a piece stays in the cache; rows of length 0 may be left out."""
    for rows, width, equal in length_classes(lengths):
        if width == 0:
            continue
        size = len(lengths) if isinstance(rows, slice) else len(rows)
        step = max(cells // width, 64)
        if size <= step:
            yield LengthClass(rows, width, equal)
            continue
        for start in range(0, size, step):
            piece = slice(start, min(start + step, size))
            yield LengthClass(piece if isinstance(rows, slice) else rows[piece], width, equal)


def blank_padding(rows: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The rows with zeros behind each one's length, which is at most their width."""
    width = rows.shape[1]
    if 0 < width <= _WIDEST_MASK:
        # A mask for each length, copied as one item: numpy compares short rows one by one.
        masks = _masks(width).take(lengths).view(np.uint8).reshape(-1, width)
        return np.bitwise_and(rows, masks, out=masks)
    # Comparing with the narrowest numbers is four times as fast as with the widest.
    kind: type[np.integer[Any]] = np.uint16 if width <= 0xFFFF else np.int64
    columns: NDArray[Any] = counting(width).astype(kind)
    inside: NDArray[np.bool_] = columns < lengths.astype(kind)[:, None]
    return rows * inside


@lru_cache(maxsize=64)
def _masks(width: int) -> NDArray[np.void]:
    """For each length up to `width` that many bytes of ones, zeros behind."""
    inside = np.arange(width) < np.arange(width + 1)[:, None]
    masks: NDArray[np.void] = (inside * np.uint8(0xFF)).view(f"V{width}").reshape(-1)
    return _read_only(masks)


def last_word(width: int) -> np.uint64:
    """The mask of a row's bytes in its last word, where rows of `width` bytes stand in words."""
    used = width % WORD or WORD
    return np.uint64(int.from_bytes(b"\xff" * used + bytes(WORD - used), sys.byteorder))


def row_numbers(rows: Rows, count: int) -> NDArray[np.int64]:
    """The rows of a class, of `count` in all, as indexes."""
    return counting(count)[rows] if isinstance(rows, slice) else rows


def counting(count: int) -> NDArray[np.int64]:
    """0 .. count-1; not to be written to."""
    return _COUNTING[:count] if count <= len(_COUNTING) else np.arange(count)


def _read_only(array: NDArray[Item]) -> NDArray[Item]:
    array.flags.writeable = False
    return array


_COUNTING: Final = _read_only(np.arange(1 << 15))


def copy_slices(
    source: NDArray[np.uint8],
    source_starts: NDArray[np.int64],
    target: NDArray[np.uint8],
    target_starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """target[t : t + length] = source[s : s + length] for every row; exact, in place.

    The slices lie within their buffers; those of the target do not overlap each other.
    """
    if len(lengths) == 0:
        return
    shortest, longest = int(np.minimum.reduce(lengths)), int(np.maximum.reduce(lengths))
    if longest >= LONG_SLICE:
        _copy_long_slices(source, source_starts, target, target_starts, lengths)
        return
    if shortest > 0 and longest <= 2 * shortest:
        _copy_class(source, source_starts, target, target_starts, lengths, shortest)
        return
    width = 1 << max(shortest, 1).bit_length() - 1
    while width <= longest:
        rows = ((lengths >= width) & (lengths < 2 * width)).nonzero()[0]
        if len(rows):
            _copy_class(
                source, source_starts[rows], target, target_starts[rows], lengths[rows], width
            )
        width *= 2


def _copy_class(
    source: NDArray[np.uint8],
    source_starts: NDArray[np.int64],
    target: NDArray[np.uint8],
    target_starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    width: int,
) -> None:
    """Slices of `width` to 2·`width` bytes: the first bytes, and over them the last."""
    _copy_rows(source, source_starts, target, target_starts, width)
    longest = int(lengths.max())
    if longest > width:
        rest = lengths - (longest - width)
        _copy_rows(source, source_starts + rest, target, target_starts + rest, longest - width)


def _copy_rows(
    source: NDArray[np.uint8],
    source_starts: NDArray[np.int64],
    target: NDArray[np.uint8],
    target_starts: NDArray[np.int64],
    width: int,
) -> None:
    read, write = windows(source, width), windows(target, width)
    step = max(_PIECE // width, 32)
    for start in range(0, len(source_starts), step):
        rows = slice(start, start + step)
        write[target_starts[rows]] = read[source_starts[rows]]


def _copy_long_slices(
    source: NDArray[np.uint8],
    source_starts: NDArray[np.int64],
    target: NDArray[np.uint8],
    target_starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    long = lengths >= LONG_SLICE
    chosen = long.nonzero()[0]
    for start, to, length in zip(
        source_starts[chosen].tolist(),
        target_starts[chosen].tolist(),
        lengths[chosen].tolist(),
        strict=True,
    ):
        target[to : to + length] = source[start : start + length]
    short = (~long).nonzero()[0]
    if len(short):
        copy_slices(source, source_starts[short], target, target_starts[short], lengths[short])


def compact(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The slices end to end, u1[sum of lengths], and where each begins and ends, i8[n + 1]."""
    offsets = offsets_of(lengths)
    flat = np.empty(int(offsets[-1]), np.uint8)
    copy_slices(data, starts, flat, offsets[:-1], lengths)
    return flat, offsets


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """i8[n + 1]: where pieces of these lengths begin when laid end to end, and the end."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def first_true(mask: NDArray[np.bool_]) -> int:
    """Index of the first True, -1 if there is none."""
    index = int(mask.argmax()) if len(mask) else 0
    return index if len(mask) and mask[index] else -1


def all_true(mask: NDArray[Any]) -> bool:
    """mask.all(), in a third of the time for a thousand rows; of numbers: whether none is 0."""
    return int(np.count_nonzero(mask)) == mask.size


def none_true(mask: NDArray[Any]) -> bool:
    """not mask.any(), likewise."""
    return not np.count_nonzero(mask)

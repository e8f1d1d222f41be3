"""Slices of many lengths as arrays: what numpy has no word for.

A window view of width w sees the bytes as overlapping items, one at every position:

    data     a b c d e f ...
    windows  [abc] [bcd] [cde] ...        item i is data[i : i + w], nothing is copied

Indexing it with positions copies w bytes per row at the price of one element, so rows of one
width cost about 10 ns each whatever the width. (`np.take` would copy the whole view first.)

Slices of different lengths are brought to few widths in two ways:

- padded rows, where reading too much does no harm: `length_classes` cuts the rows into groups
  that waste no more bytes than they hold;
- exact copies: a slice of w to 2w bytes is its first w bytes and its last w bytes, which may
  overlap. Nothing outside the slices is read or written.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]
Rows = slice | NDArray[np.int64]

_ALWAYS_ALLOWED_WASTE: Final = 1 << 16
"""Padding below this costs less than a second round of calls."""
_LONG_SLICE: Final = 4096
"""From here on the copying itself outweighs a Python statement per slice."""


def byte_array(buffer: Buffer) -> NDArray[np.uint8]:
    """`buffer` as u1[len], without a copy; writable if the buffer is."""
    if isinstance(buffer, np.ndarray):
        return buffer
    return np.frombuffer(buffer, np.uint8)


def windows(data: NDArray[np.uint8], width: int) -> NDArray[np.void]:
    """Every `width` bytes of `data`, overlapping: void items, one for each position at which a
    whole window fits. `data` must be contiguous and at least `width` long, `width` above 0."""
    return np.ndarray((len(data) - width + 1,), np.dtype(f"V{width}"), data, 0, (1,))


def gather_rows(
    data: NDArray[np.uint8], starts: NDArray[np.int64], width: int
) -> NDArray[np.uint8]:
    """u1[n, width]: row i is data[starts[i] : starts[i] + width], zeros where that is past the
    end. Every start lies within 0 .. len(data); width is above 0."""
    if len(starts) == 0:
        return np.zeros((0, width), np.uint8)
    last = len(data) - width
    if last >= 0 and int(starts.max()) <= last:
        return windows(data, width)[starts].view(np.uint8).reshape(-1, width)
    # The few rows that reach past the end are read from a padded copy of the last bytes.
    tail_start = max(last + 1, 0)
    tail = np.concatenate((data[tail_start:], np.zeros(width, np.uint8)))
    rows = np.empty((len(starts), width), np.uint8)
    late = starts >= tail_start
    early = np.flatnonzero(~late)
    if len(early):
        rows[early] = windows(data, width)[starts[early]].view(np.uint8).reshape(-1, width)
    late_starts = starts[late] - tail_start
    rows[late] = windows(tail, width)[late_starts].view(np.uint8).reshape(-1, width)
    return rows


def length_classes(lengths: NDArray[np.int64]) -> Iterator[tuple[Rows, int]]:
    """Groups of rows, each with the greatest length in it (0 too): padded to that, a group
    holds at most twice its bytes, or 64 KiB more. Together the groups are all rows, once."""
    if len(lengths) == 0:
        return
    everything: Rows = slice(None)
    pending: list[tuple[Rows, NDArray[np.int64]]] = [(everything, lengths)]
    while pending:
        rows, mine = pending.pop()
        width = int(mine.max())
        total = int(mine.sum())
        if width * len(mine) - total <= max(total, _ALWAYS_ALLOWED_WASTE):
            yield rows, width
            continue
        long = mine * 2 > width
        for part in (np.flatnonzero(~long), np.flatnonzero(long)):
            chosen = part if isinstance(rows, slice) else rows[part]
            pending.append((chosen, mine[part]))


def row_chunks(rows: Rows, count: int, width: int, cells: int) -> Iterator[Rows]:
    """`rows` of a class (of `count` rows in all, where it is all of them) in pieces of at most
    `cells` bytes once padded to `width`, so that what is made of a piece stays in the cache."""
    size = count if isinstance(rows, slice) else len(rows)
    step = max(cells // max(width, 1), 64)
    if size <= step:
        yield rows
        return
    for start in range(0, size, step):
        piece = slice(start, min(start + step, size))
        yield piece if isinstance(rows, slice) else rows[piece]


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
    shortest, longest = int(lengths.min()), int(lengths.max())
    if longest >= _LONG_SLICE:
        _copy_long_slices(source, source_starts, target, target_starts, lengths)
        return
    if shortest > 0 and longest <= 2 * shortest:
        _copy_class(source, source_starts, target, target_starts, lengths, shortest)
        return
    width = 1 << max(shortest, 1).bit_length() - 1
    while width <= longest:
        rows = np.flatnonzero((lengths >= width) & (lengths < 2 * width))
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
    read, write = windows(source, width), windows(target, width)
    write[target_starts] = read[source_starts]
    rest = lengths - width
    if rest.any():
        write[target_starts + rest] = read[source_starts + rest]


def _copy_long_slices(
    source: NDArray[np.uint8],
    source_starts: NDArray[np.int64],
    target: NDArray[np.uint8],
    target_starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    long = lengths >= _LONG_SLICE
    chosen = np.flatnonzero(long)
    for start, to, length in zip(
        source_starts[chosen].tolist(),
        target_starts[chosen].tolist(),
        lengths[chosen].tolist(),
        strict=True,
    ):
        target[to : to + length] = source[start : start + length]
    short = np.flatnonzero(~long)
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


def owners_and_ranks(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For counts[i] things of each owner i, in order: the owner of each thing, i8[sum], and its
    number among the owner's, i8[sum]. (3, 0, 2) gives (0 0 0 2 2) and (0 1 2 0 1)."""
    owners = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    return owners, np.arange(len(owners)) - firsts[owners]


def first_true(mask: NDArray[np.bool_]) -> int:
    """Index of the first True, -1 if there is none."""
    index = int(mask.argmax()) if len(mask) else 0
    return index if len(mask) and mask[index] else -1

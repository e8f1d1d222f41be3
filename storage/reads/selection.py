"""Which units of a consume queue one get takes, decided on their columns (RocketMQ, section 9.1).

    units     u u u u u u u u u u u u
    matched   . x x . x . . x x x . .       by the tags code, low 32 bits
    taken     . x x . x . . x                up to the limits of count and bytes
    examined  . . . . . . . .|               the next get starts after the last unit examined

As in RocketMQ, the limits are checked before each unit: the get ends when enough messages are
taken, or when something is taken and this unit's record, matching or not, would exceed the bytes.
So the first record is returned whatever its size.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import counting, first_true
from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE

MIN_EXAMINED = 800
MAX_EXAMINED = 1 << 16
_SMALLEST_RECORD = 128


@dataclass(frozen=True, slots=True)
class Selection:
    """`examined` units were looked at; the taken ones' positions and sizes in the log.

    `rows` i8[n] are the taken units' places among those examined; `removed` says that something
    matched and is no longer in the log.
    """

    examined: int
    rows: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    removed: bool


def units_to_read(max_messages: int, max_bytes: int) -> int:
    """How many units one get looks at, at most; RocketMQ: 800, more only for more messages."""
    if max_messages > 0:
        return max(MIN_EXAMINED, min(max_messages, MAX_EXAMINED))
    return max(MIN_EXAMINED, min(max_bytes // _SMALLEST_RECORD, MAX_EXAMINED))


def select(
    units: NDArray[np.void],
    *,
    max_messages: int,
    max_bytes: int,
    tag_hashes: Collection[int],
    log_start: int,
) -> Selection:
    """`units` is UNIT_DTYPE[n]; no tag hashes means every tag, max_messages 0 no such limit.

    Records below `log_start` are gone; so are those of pre-blank units, which point nowhere.
    """
    offsets = units["physical_offset"].astype(np.int64)
    sizes = units["size"].astype(np.int64)
    matched = _matching(units, tag_hashes)
    there = (offsets >= log_start) & (sizes != PRE_BLANK_SIZE)
    taken = there if matched is None else matched & there
    everything = bool(taken.all())
    taken_sizes = sizes if everything else np.where(taken, sizes, 0)
    bytes_after = np.cumsum(taken_sizes)
    bytes_before = bytes_after - taken_sizes
    full = (bytes_before > 0) & (bytes_before + sizes > max_bytes)
    if max_messages > 0:
        if everything:
            full[max_messages:] = True
        else:
            full |= np.cumsum(taken) - taken >= max_messages
    examined = int(full.argmax()) if full.any() else len(units)
    if everything:
        return Selection(examined, counting(examined), offsets[:examined], sizes[:examined], False)
    chosen = np.flatnonzero(taken[:examined])
    wanted = ~there[:examined] if matched is None else matched[:examined] & ~there[:examined]
    return Selection(examined, chosen, offsets[chosen], sizes[chosen], bool(wanted.any()))


def narrowed(
    chosen: Selection, kept: NDArray[np.bool_], *, max_messages: int, max_bytes: int
) -> tuple[Selection, NDArray[np.int64]]:
    """What a filter leaves of a selection, and which of its records these are, i8[m].

    The limits are those of `select`, and count only what is left. Where they end it, the next get
    starts at the first record that they leave out.
    """
    left = np.flatnonzero(kept)
    sizes = chosen.sizes[left]
    before = np.cumsum(sizes) - sizes
    full = (before > 0) & (before + sizes > max_bytes)
    if max_messages > 0:
        full[max_messages:] = True
    end = first_true(full)
    examined = chosen.examined
    if end >= 0:
        examined = int(chosen.rows[left[end]])
        left = left[:end]
    rows, offsets = chosen.rows[left], chosen.physical_offsets[left]
    return Selection(examined, rows, offsets, chosen.sizes[left], chosen.removed), left


def first_gone(units: NDArray[np.void], log_start: int) -> int:
    """Index of the first of UNIT_DTYPE[n] that has no record in a log that begins at `log_start`,
    or -1: its record is below that, or it is pre-blank."""
    return first_true((units["physical_offset"] < log_start) | (units["size"] == PRE_BLANK_SIZE))


def first_impossible(units: NDArray[np.void], log_start: int) -> int:
    """Index of the first of UNIT_DTYPE[n] that no dispatch writes where no record is gone, or -1:
    one that points below `log_start`, has no size, or is pre-blank and points somewhere."""
    offsets, sizes = units["physical_offset"], units["size"]
    blank = sizes == PRE_BLANK_SIZE
    wrong = (offsets < log_start) | (sizes <= 0)
    if blank.any():
        wrong = np.where(blank, offsets != 0, wrong)
    return first_true(wrong)


def _matching(units: NDArray[np.void], tag_hashes: Collection[int]) -> NDArray[np.bool_] | None:
    """Which units have one of the hashes; None if all do."""
    if not tag_hashes:
        return None
    codes = units["tags_code"].astype(np.int64).astype(np.int32)
    return np.isin(codes, np.fromiter(tag_hashes, dtype=np.int32, count=len(tag_hashes)))


def runs(
    physical_offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and length of each stretch of records that lie end to end in the log.

    A stretch never crosses a file: a file ends with a BLANK, so the next record starts elsewhere.
    """
    if len(sizes) == 0:
        return physical_offsets, sizes
    ends = physical_offsets + sizes
    breaks = np.flatnonzero(physical_offsets[1:] != ends[:-1])
    starts = physical_offsets[np.concatenate(([0], breaks + 1))]
    lengths = ends[np.concatenate((breaks, [len(ends) - 1]))] - starts
    return starts, lengths

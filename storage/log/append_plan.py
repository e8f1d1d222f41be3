"""Where the records of a batch go, in the log and in their queues, which only the master knows:
pure arithmetic over their columns.

    file N                              file N+1
    | ... wrote| r0 | r1 | BLANK .... |  | r2 | r3 |
                piece 0      blank          piece 1

A record of L bytes goes into a file only if L + 8 <= what is left of it, so every full file ends
with a BLANK record of at least 8 bytes (RocketMQ's rule, section 1.3). The records of a request
that still fit stay, the rest goes to the next file.

Queue offsets are counted per table entry, in the order of the records: sort them stably by their
entry, number the sorted ones, and put the numbers back where they came from. Offsets, store time
and store host are written into the records' bytes in place.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import counting
from tandemlog.format.columns.patch import patch_stored_fields
from tandemlog.format.constants import BLANK_SIZE
from tandemlog.format.record.batch import AppendSegment

from .batch_check import FEW_RECORDS, CheckedBatch


@dataclass(frozen=True, slots=True)
class Piece:
    """Records first .. first+count-1 of the batch, its bytes start .. end, at log `offset`."""

    first: int
    count: int
    start: int
    end: int
    offset: int


@dataclass(frozen=True, slots=True)
class Blank:
    """The rest of a file that is given up: `size` bytes from log `offset`."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """Pieces and blanks, both in log order, and the log offset after the last piece."""

    pieces: tuple[Piece, ...]
    blanks: tuple[Blank, ...]
    end: int


def plan_append(ends: NDArray[np.int64], wrote: int, file_size: int) -> AppendPlan:
    """`ends` i8[n] > 0: where each record ends in the batch. No record is longer than
    file_size - 8, else ValueError."""
    count, total = len(ends), int(ends[-1])
    room = file_size - wrote % file_size
    if total + BLANK_SIZE <= room:
        return AppendPlan((Piece(0, count, 0, total, wrote),), (), wrote + total)
    pieces: list[Piece] = []
    blanks: list[Blank] = []
    offset, first, start = wrote, 0, 0
    while first < count:
        room = file_size - offset % file_size
        after = int(np.searchsorted(ends, start + room - BLANK_SIZE, side="right"))
        if after > first:
            end = int(ends[after - 1])
            pieces.append(Piece(first, after - first, start, end, offset))
            offset, first, start = offset + end - start, after, end
        elif room == file_size:
            raise ValueError(f"record {first} does not fit a file of {file_size} bytes")
        if first < count:
            rest = file_size - offset % file_size
            blanks.append(Blank(offset, rest))
            offset += rest
    return AppendPlan(tuple(pieces), tuple(blanks), offset)


def plan_raw(offset: int, size: int) -> AppendPlan:
    """Bytes that are stored as they are, within one file."""
    return AppendPlan((Piece(0, 0, 0, size, offset),), (), offset + size)


def assign_offsets(
    checked: CheckedBatch,
    plan: AppendPlan,
    data: NDArray[np.uint8],
    next_offsets: NDArray[np.int64],
    *,
    store_timestamp: int,
    store_host: bytes,
) -> list[AppendSegment]:
    """Write every record's offsets, time (ms) and host into `data`, a copy of the batch's bytes.

    `next_offsets` i8[q], what each entry's next record gets, moves behind the batch.
    """
    segments = []
    for piece in plan.pieces:
        rows = slice(piece.first, piece.first + piece.count)
        indexes = checked.batch.queue_indexes[rows]
        positions = checked.positions[rows]
        if checked.counted is None and piece.count < FEW_RECORDS:
            offsets, counts = assign_few(indexes, next_offsets)
        elif checked.counted is None:
            offsets, counts = assign_queue_offsets(indexes, next_offsets)
        else:
            offsets, counts = assign_counted(indexes, checked.counted[rows], next_offsets)
        firsts = first_queue_offsets(indexes, counts, next_offsets)
        patch_stored_fields(
            data,
            positions,
            queue_offsets=offsets,
            physical_offsets=positions + (piece.offset - piece.start),
            store_timestamp=store_timestamp,
            store_host=store_host,
        )
        next_offsets += counts
        segments.append(
            AppendSegment(piece.first, piece.count, piece.offset, firsts, checked.record_extra)
        )
    return segments


def assign_queue_offsets(
    queue_indexes: NDArray[np.integer[Any]], next_offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(i8[n] queue offset of each record, i8[q] records of each table entry).

    `next_offsets` i8[q]: what the first record of each entry gets.
    """
    counts = np.bincount(queue_indexes, minlength=len(next_offsets))
    order = queue_indexes.argsort(kind="stable")
    firsts = next_offsets + counts
    firsts -= counts.cumsum()
    in_order = firsts.repeat(counts)
    in_order += counting(len(queue_indexes))
    offsets = np.empty(len(queue_indexes), np.int64)
    offsets[order] = in_order
    return offsets, counts


def assign_few(
    queue_indexes: NDArray[np.integer[Any]], next_offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """assign_queue_offsets, faster for a few records."""
    following: list[int] = next_offsets.tolist()
    offsets = []
    for index in queue_indexes.tolist():
        offset = following[index]
        offsets.append(offset)
        following[index] = offset + 1
    return np.array(offsets, np.int64), np.array(following, np.int64) - next_offsets


def assign_counted(
    queue_indexes: NDArray[np.integer[Any]],
    counted: NDArray[np.bool_],
    next_offsets: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """assign_queue_offsets where only `counted` records get one; the others have 0."""
    offsets = np.zeros(len(queue_indexes), np.int64)
    offsets[counted], counts = assign_queue_offsets(queue_indexes[counted], next_offsets)
    return offsets, counts


def first_queue_offsets(
    queue_indexes: NDArray[np.integer[Any]],
    counts: NDArray[np.int64],
    next_offsets: NDArray[np.int64],
) -> NDArray[np.int64]:
    """i8[q]: the offset of each entry's first record; -1 if the entry has no record, 0 if none of
    its records is counted."""
    firsts = np.where(counts > 0, next_offsets, -1)
    if int(counts.sum()) != len(queue_indexes):
        present = np.bincount(queue_indexes, minlength=len(counts)) > 0
        firsts[present & (counts == 0)] = 0
    return firsts

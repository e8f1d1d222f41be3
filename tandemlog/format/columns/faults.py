"""What is wrong with the first wrong record of many, and the walk that stops before it.

The columns find the record; the plain decoder (record.py) says what is wrong with it, so both
ways of reading name the same field for the same bytes.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.grouping import distinct_slices
from ..arrays.ragged import Buffer, all_true, byte_array, first_true
from ..constants import CRC32, MIN_RECORD_SIZE, PAGE
from ..errors import CorruptRecordError
from ..files.names import names_a_folder
from ..record.record import decode_record
from .crcs import first_bad_crc
from .headers import HeaderColumns, gather_headers
from .property_crcs import wrong_property_crcs
from .walk import StopReason, WalkResult, walk, why_stopped

_TORN_TAIL: Final = 8
"""This many zero bytes at the end of a wrong record: it was never written completely."""


@dataclass(frozen=True, slots=True)
class RecordFault:
    """The first wrong record: its number among those checked, and what is wrong."""

    index: int
    error: CorruptRecordError


def find_fault(
    buffer: Buffer,
    headers: HeaderColumns,
    *,
    base_offset: int | None = None,
    check_crc: bool = False,
) -> RecordFault | None:
    """The first record that is wrong, None if all hold.

    Checks sizes, magic and inner lengths; with `base_offset`, the log offset of buffer[0], the
    position that each record says it has; with `check_crc` the CRC of every body.
    """
    good = headers.well_formed
    if base_offset is not None:
        good = good & (headers.physical_offset == headers.positions + base_offset)
    index = -1 if all_true(good) else int(good.argmin())
    if check_crc:
        checked = headers if index < 0 else headers.head(index)
        bad_crc = first_bad_crc(buffer, checked.body_start, checked.body_length, checked.body_crc)
        index = bad_crc if bad_crc >= 0 else index
    if index < 0:
        return None
    return RecordFault(index, _explain(buffer, headers, index, base_offset, check_crc))


def _explain(
    buffer: Buffer, headers: HeaderColumns, index: int, base_offset: int | None, check_crc: bool
) -> CorruptRecordError:
    """What is wrong with a record that the columns found wrong."""
    position, size = int(headers.positions[index]), int(headers.sizes[index])
    at = position + (base_offset or 0)
    data = byte_array(buffer).data
    if position < 0 or size < MIN_RECORD_SIZE or position + size > len(data):
        return CorruptRecordError(
            at, "size", f"{size} bytes at {position} of {len(data)} cannot be a record"
        )
    try:
        decode_record(
            data,
            position,
            physical_offset=None if base_offset is None else at,
            check_crc=check_crc,
            limit=position + size,
        )
    except CorruptRecordError as error:
        return CorruptRecordError(at, error.field, error.reason)
    said = int(headers.stored_size[index])
    return CorruptRecordError(at, "size", f"it says {said}, it was given as {size}")


def walk_strict(
    buffer: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    base_offset: int | None,
    limit: int | None = None,
    max_records: int | None = None,
    check_crc: bool = True,
    check_topics: bool = False,
    check_property_crc: bool = False,
    holes_above: int | None = None,
    guess: NDArray[np.int64] | None = None,
) -> tuple[WalkResult, HeaderColumns]:
    """walk, and everything inside the records checked too: the records before the first fault,
    and their headers.

    A fault stops with CORRUPT, or with TORN where the record ends in zero bytes, as a write
    that was cut off leaves it. Parameters as in walk and find_fault; `check_topics`: a topic that
    is not a valid folder name is a fault too; `check_property_crc`: so is a wrong property CRC;
    `holes_above`: so are properties, of records that end above that log offset, out of which a
    power cut may have left a page.
    """
    data = byte_array(buffer)
    walked, headers = _walk(data, start, end, base_offset, limit, max_records, guess)
    fault = find_fault(data, headers, base_offset=base_offset, check_crc=check_crc)
    if check_property_crc:
        sound = headers if fault is None else headers.head(fault.index)
        fault = _wrong_property_crc(data, sound, base_offset or 0) or fault
    if check_topics:
        sound = headers if fault is None else headers.head(fault.index)
        fault = _stray_topic(data, sound, base_offset or 0) or fault
    if holes_above is not None:
        sound = headers if fault is None else headers.head(fault.index)
        fault = _hole(data, sound, base_offset or 0, holes_above) or fault
    if fault is None:
        return walked, headers
    position = int(walked.positions[fault.index])
    record_end = position + int(walked.sizes[fault.index])
    torn = not data[record_end - _TORN_TAIL : record_end].any()
    cut = WalkResult(
        walked.positions[: fault.index],
        walked.sizes[: fault.index],
        position,
        StopReason.TORN if torn else StopReason.CORRUPT,
        fault.error,
    )
    return cut, headers.head(fault.index)


def _walk(
    data: NDArray[np.uint8],
    start: int,
    end: int | None,
    base_offset: int | None,
    limit: int | None,
    max_records: int | None,
    guess: NDArray[np.int64] | None,
) -> tuple[WalkResult, HeaderColumns]:
    if guess is not None and max_records is None:
        as_guessed = _walk_as_guessed(data, start, end, base_offset, limit, guess)
        if as_guessed is not None:
            return as_guessed
    found = walk(
        data,
        start,
        end,
        base_offset=base_offset,
        limit=limit,
        max_records=max_records,
        guess=guess,
    )
    return found, gather_headers(data, found.positions, found.sizes)


def _walk_as_guessed(
    data: NDArray[np.uint8],
    start: int,
    end: int | None,
    base_offset: int | None,
    limit: int | None,
    guess: NDArray[np.int64],
) -> tuple[WalkResult, HeaderColumns] | None:
    """Walk and headers in one, where the guess is all that there is; None if it is not.

    Its steps are taken for the sizes: headers that hold together prove them, as their own sizes
    and magic say the same.
    """
    stop_at = min(each for each in (len(data), end, limit) if each is not None)
    if not len(guess) or guess[0] != start or not start <= guess[-1] <= stop_at:
        return None
    last = int(guess[-1])
    after = last + int.from_bytes(data[last : last + 4].data, signed=True)
    if after > stop_at or after < last + MIN_RECORD_SIZE:
        guess, after = guess[:-1], last
        if not len(guess):
            return None
    sizes = np.empty(len(guess), np.int64)
    np.subtract(guess[1:], guess[:-1], out=sizes[:-1])
    sizes[-1] = after - guess[-1]
    stop, fault = why_stopped(data, after, stop_at, limit, base_offset or 0)
    if stop is None:
        return None
    headers = gather_headers(data, guess, sizes)
    if not all_true(headers.well_formed):
        return None
    return WalkResult(guess, headers.stored_size, after, stop, fault), headers


def first_hole(
    data: NDArray[np.uint8], headers: HeaderColumns, first: int = 0, *, longer_by: int = 0
) -> int:
    """The first record from `first` on whose properties are long enough to hide a page of the
    disk, and have a zero byte, which is in no text; -1 for none. No CRC covers them: a page of
    body that is lost is seen, one at a record's end too, as the next record is lost with it.
    `longer_by`: bytes that the properties are still to get."""
    least = PAGE - longer_by
    long = (headers.properties_length[first:] >= least).nonzero()[0]
    for row in (long + first).tolist():
        start = int(headers.properties_start[row])
        if not data[start : start + int(headers.properties_length[row])].all():
            return int(row)
    return -1


def _hole(
    data: NDArray[np.uint8], headers: HeaderColumns, base: int, above: int
) -> RecordFault | None:
    ends = headers.positions + headers.sizes
    index = first_hole(data, headers, int(np.searchsorted(ends, above - base, side="right")))
    if index < 0:
        return None
    at = base + int(headers.positions[index])
    return RecordFault(index, CorruptRecordError(at, "properties", "a page of them is zero bytes"))


def _wrong_property_crc(
    data: NDArray[np.uint8], headers: HeaderColumns, base: int
) -> RecordFault | None:
    index = first_true(wrong_property_crcs(data, headers.positions, headers.sizes))
    if index < 0:
        return None
    at = base + int(headers.positions[index])
    reason = f"{CRC32} does not hold for the record's bytes"
    return RecordFault(index, CorruptRecordError(at, "properties", reason))


def _stray_topic(data: NDArray[np.uint8], headers: HeaderColumns, base: int) -> RecordFault | None:
    """The first record whose topic cannot have a folder."""
    if not headers.count:
        return None
    firsts, numbers = distinct_slices(data, headers.topic_start, headers.topic_length)
    topics = [
        data[start : start + length].tobytes().decode("utf-8", "replace")
        for start, length in zip(
            headers.topic_start[firsts].tolist(), headers.topic_length[firsts].tolist(), strict=True
        )
    ]
    stray = [number for number, topic in enumerate(topics) if not names_a_folder(topic)]
    if not stray:
        return None
    index = int(np.isin(numbers, stray).argmax())
    at = base + int(headers.positions[index])
    reason = f"{topics[int(numbers[index])]!r} is not a valid folder name"
    return RecordFault(index, CorruptRecordError(at, "topic", reason))

"""A master's log bytes on their way into a slave's log: checked first, then stored unchanged.

    chunks    | r r r r ra|b r r r r r| r rXXXXXX        X: no record
    stored    | r r r r     r r r r r | r r
    held back            ra|b                            the beginning of a record, in memory

Only whole, valid records come into the log, so nothing else is ever fsynced, acknowledged or
dispatched; if a record, or the BLANK of a file, continues in the next chunk, its beginning is held
back until the rest has arrived. Sizes, magic, positions and inner lengths are checked by columns;
the CRC of the chunk covers the bodies. At the first bytes that are not a record everything before
them is stored and DamagedChunkError names the position: the stream ends, and the next one begins
there.

A slave also follows a master whose own log has damage in the middle (which its recovery has
skipped) byte for byte: it asks the master about the position, the master replies up to where its
log has no record, and the slave stores bytes below `damaged_until` unchecked.
"""

import logging
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.columns.plain_records import all_plain
from tandemlog.format.columns.walk import StopReason, WalkResult, walk, why_stopped
from tandemlog.format.constants import BLANK_SIZE, MAGIC_BLANK, MIN_RECORD_SIZE, SIZE_AND_MAGIC
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.record.record import decode_record

from ..disk.file_system import Buffer
from ..errors import DamagedChunkError
from .commit_log import CommitLog
from .record_search import next_record

logger = logging.getLogger(__name__)

FEW_RECORDS = 8
MAX_RECORD_BYTES = 128 << 20
"""A record of a larger size is damage: it would be held back in memory."""


class RawIntake:
    """Of one stream; see the module. `store(offset, data)` appends what ends with a record, and
    `store_part` what may end anywhere; `remember(starts)` gets the log offsets of the records that
    were stored, for dispatch. One thread calls."""

    def __init__(
        self,
        file_size: int,
        store: Callable[[int, Buffer], None],
        store_part: Callable[[int, Buffer], None] | None = None,
        remember: Callable[[NDArray[np.int64]], None] | None = None,
    ) -> None:
        self._file_size = file_size
        self._remember = remember
        self._store = store
        self._store_part = store_part if store_part is not None else store
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._blank_until = 0

    def take(self, offset: int, data: Buffer, damaged_until: int = 0) -> None:
        """Bytes at log offset `offset`, of one file: where the last ones ended. Raises
        DamagedChunkError, and what `store` raises."""
        view = memoryview(data)
        unjudged = max(damaged_until, self._blank_until)
        if offset < unjudged and not self._held:
            count = min(unjudged - offset, len(view))
            self._store_part(offset, view[:count])
            offset, view = offset + count, view[count:]
        if self._held and len(view):
            used = self._complete(offset, view)
            offset, view = offset + used, view[used:]
        if len(view):
            self._judge(offset, view)

    def _complete(self, offset: int, view: memoryview) -> int:
        """Continue the record that is held back; returns how many of the bytes belong to it."""
        used = 0
        if self._held_bytes < BLANK_SIZE:
            used = min(BLANK_SIZE - self._held_bytes, len(view))
            self._hold(view[:used])
            if self._held_bytes < BLANK_SIZE:
                return used
        size: int
        magic: int
        size, magic = SIZE_AND_MAGIC.unpack_from(self._head())
        start = offset + used - self._held_bytes
        room = self._file_size - start % self._file_size
        blank = magic == MAGIC_BLANK and size == room
        if size > min(room, MAX_RECORD_BYTES) or not (blank or size >= MIN_RECORD_SIZE):
            size = self._held_bytes  # damage: as far as it is here
        count = min(max(size - self._held_bytes, 0), len(view) - used)
        self._hold(view[used : used + count])
        used += count
        if self._held_bytes >= size:
            whole = b"".join(self._held)
            self._held, self._held_bytes = [], 0
            self._judge(start, memoryview(whole))
        return used

    def _head(self) -> bytes:
        if len(self._held[0]) < BLANK_SIZE:
            self._held[:] = [b"".join(self._held)]
        return self._held[0]

    def _hold(self, piece: memoryview) -> None:
        if len(piece):
            self._held.append(bytes(piece))
            self._held_bytes += len(piece)

    def _judge(self, offset: int, view: memoryview) -> None:
        """Store the whole records of `view`, hold back the beginning of one, or raise."""
        room = self._file_size - offset % self._file_size
        first, few = few_records(view, offset, room)
        if first == len(view):
            self._store(offset, view)
            self._stored(offset, few)
            return
        walked = walk(view, first, base_offset=offset, limit=room)
        if not all_plain(view, walked.positions, walked.sizes, offset):
            walked, _ = walk_strict(view, first, base_offset=offset, limit=room, check_crc=False)
        self._store_judged(offset, view, walked, room)
        self._stored(offset, few, walked.positions)

    def _store_judged(self, offset: int, view: memoryview, walked: WalkResult, room: int) -> None:
        """Store the records that were found; what comes after them is held back, or is damage."""
        good, at = walked.end, offset + walked.end
        if walked.stop is StopReason.BLANK:
            size = int.from_bytes(view[good : good + 4])
            if size != room - good:
                self._store_if(offset, view[:good])
                raise DamagedChunkError(at, f"a BLANK of {size} bytes, {room - good} are left")
            if len(view) < room and size <= MAX_RECORD_BYTES:
                # store only all of it: the next stream could not judge its rest alone
                self._store_if(offset, view[:good])
                self._hold(view[good:])
                return
            self._blank_until = offset + room
            if len(view) < room:
                self._store_part(offset, view)
                return
            good = len(view)
        self._store_if(offset, view[:good])
        if walked.stop is StopReason.INCOMPLETE:
            size = int.from_bytes(view[good : good + 4]) if len(view) - good >= 4 else 0
            if size > MAX_RECORD_BYTES:
                raise DamagedChunkError(at, f"a record of {size} bytes")
            self._hold(view[good:])
        elif walked.stop in (StopReason.ZEROS, StopReason.TORN, StopReason.CORRUPT):
            fault = walked.error
            reason = f"{fault.field}: {fault.reason}" if fault is not None else walked.stop.value
            raise DamagedChunkError(at, reason)

    def _store_if(self, offset: int, view: memoryview) -> None:
        if len(view):
            self._store(offset, view)

    def _stored(
        self, offset: int, few: Sequence[int], others: NDArray[np.int64] | None = None
    ) -> None:
        """Records begin at these places of bytes that were stored at `offset`."""
        starts = np.array(few, np.int64)
        if others is not None:
            starts = np.concatenate((starts, others))
        if self._remember is not None and len(starts):
            self._remember(starts + offset)


def few_records(view: memoryview, offset: int, room: int) -> tuple[int, list[int]]:
    """Where a few valid records end and begin, decoded one by one: for a small chunk that takes a
    tenth of the time of the columns. (0, []) for a chunk of more records."""
    if _more_than_few(view):
        return 0, []
    data, position, starts = np.frombuffer(view, np.uint8), 0, list[int]()
    while position < len(view):
        stop, _fault = why_stopped(data, position, len(view), room, offset)
        if stop is not None:
            break
        try:
            record = decode_record(
                view,
                position,
                physical_offset=offset + position,
                check_crc=False,
                limit=position + int.from_bytes(view[position : position + 4]),
            )
        except CorruptRecordError:
            break  # the columns say the same, and name it
        starts.append(position)
        position += record.size
    return position, starts


def _more_than_few(view: memoryview) -> bool:
    """By the sizes alone, which lead from record to record."""
    position, last = 0, len(view) - BLANK_SIZE
    for _ in range(FEW_RECORDS):
        if position > last:
            return False
        size: int = SIZE_AND_MAGIC.unpack_from(view, position)[0]
        if size < MIN_RECORD_SIZE:
            return False
        position += size
    return position < len(view)


def damage_end(log: CommitLog, offset: int) -> int:
    """Up to where the log has no record from `offset` on, 0 if one begins there; what may be
    sent ends at the log's committed end. Raises OffsetOutOfRangeError, UnreadableError."""
    end = log.committed.value
    if offset >= end:
        return 0
    data = log.read(offset, log.file_size)
    size = int.from_bytes(data[:4]) if len(data) >= BLANK_SIZE else 0
    if end < offset + size <= log.wrote.value:
        return 0  # its end is still to come
    room = log.file_size - offset % log.file_size
    walked, _ = walk_strict(
        np.frombuffer(data, np.uint8), base_offset=offset, limit=room, max_records=1,
        check_crc=False,
    )  # fmt: skip
    blank = walked.stop is StopReason.BLANK and not walked.count
    if walked.count or (blank and size == room):
        return 0
    following = next_record(log.mapped, offset, end)
    logger.warning("a slave has found damage in this log: %d..%s", offset, following or end)
    return end if following is None else following

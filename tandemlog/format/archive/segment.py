"""From bytes of the log to a segment: as many whole records as there are, their CRCs checked.

    content   | record | record | record | rec         ends inside a record: three are taken
    content   | record | BLANK ................ |      a file's end: all of it, as it is in the file

What is behind a BLANK's eight bytes is bytes of the file too: an archive's objects in order are the
commit log, byte for byte.
"""

from collections.abc import Collection
from dataclasses import dataclass

from ..columns.dispatch import dispatch_columns, unit_columns, without_units
from ..columns.faults import walk_strict
from ..columns.walk import StopReason
from ..errors import CorruptRecordError
from ..files.queue_unit import DEFAULT_LEVELS, DelayLevels
from .manifest import SegmentEntry
from .object_name import SegmentName, digest_of
from .segment_index import SegmentIndex, make_index


@dataclass(frozen=True, slots=True)
class Segment:
    """`content`: its bytes, a part of what it was taken from; `index`: what is in them."""

    content: memoryview
    index: SegmentIndex

    @property
    def name(self) -> SegmentName:
        return self.index.name

    @property
    def entry(self) -> SegmentEntry:
        """As a manifest has it."""
        return SegmentEntry(self.name, self.name.end, self.index.records, *self.index.times)


def take_segment(
    content: bytes | memoryview,
    start: int,
    term_id: int,
    file_size: int,
    *,
    delay_levels: DelayLevels = DEFAULT_LEVELS,
    in_batch_queues: Collection[str] = (),
) -> Segment | None:
    """The whole records at the beginning of `content`, which is of one term and of one commit log
    file, and begins at the log offset `start`, where a record does; None if not one is whole.

    `delay_levels`, `in_batch_queues` (topics): as dispatch takes them. Raises CorruptRecordError
    where the first bytes are no record, and no beginning of one."""
    walked, headers = walk_strict(content, base_offset=start)
    end = walked.end
    file_end = start - start % file_size + file_size
    if walked.stop is StopReason.BLANK and start + len(content) >= file_end:
        end = file_end - start
    if not end:
        if walked.stop in (StopReason.ZEROS, StopReason.TORN, StopReason.CORRUPT):
            raise walked.error or CorruptRecordError(start, "record", walked.stop.value)
        return None
    columns = dispatch_columns(
        content,
        walked.positions,
        walked.sizes,
        start,
        delay_levels=delay_levels,
        index=False,
        headers=headers,
    )
    if in_batch_queues:
        columns = without_units(columns, in_batch_queues)
    taken = memoryview(content)[:end]
    name = SegmentName(start, start + end, term_id, digest_of(taken))
    times = columns.store_timestamp.astype("i8")
    return Segment(taken, make_index(name, taken, walked.positions, times, unit_columns(columns)))

"""Where the frames of RocketMQ's HA stream end: on a record's boundary wherever that is possible.

    log    | record | record | record | large record ................ | record |
    frames | 1               | 2      | 3        | 4        | 5       | 6

A slave stores a frame whole or not at all, so between two connections its log ends where a frame
has ended. As frames end with records, a slave whose log ends at no boundary has another log, unless
it ends in a record that is larger than a frame.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tandemlog.format.constants import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_AND_MAGIC,
    Buffer,
)
from tandemlog_server.ha.errors import HaError
from tandemlog_server.ha.store_port import LogPort

FRAME_BYTES: Final = 256 << 10
"""The log bytes of a frame. A slave's buffer is 4 MiB, and a frame must fit into it."""

_MAGICS: Final = frozenset((MAGIC_V1, MAGIC_V2, MAGIC_BLANK))


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the log. Between two records, `record` is the position itself. Inside of a
    record, `record` is where that begins, and `rest` how many of its bytes follow."""

    record: int
    rest: int = 0


@dataclass(slots=True)
class Cut:
    """The frames of some log bytes: where each ends, as log offsets. `midway`: the ends inside of a
    record, and where that begins. `place` is the position behind the last frame."""

    place: Place
    ends: list[int] = field(default_factory=list)
    midway: dict[int, int] = field(default_factory=dict)

    def slice(self, ends: Iterable[int], record: int) -> None:
        """Frames that end inside of the record that begins at `record`."""
        for end in ends:
            self.ends.append(end)
            self.midway[end] = record


def cut(data: Buffer, offset: int, place: Place, limit: int = FRAME_BYTES) -> Cut:
    """The frames of `data`, which lies at `offset` of the log, where `place` is. A record that is
    not whole in `data` is left out, unless it is larger than a frame. Raises HaError where no
    record begins."""
    frames = Cut(place)
    size = len(data)
    begin = boundary = 0  # of the frame; behind the last record that is in it
    record, at = place.record - offset, place.rest  # where the record begins that ends at `at`
    while at <= size:
        if at - begin > limit and boundary > begin:
            frames.ends.append(offset + boundary)
            begin = boundary
        if at - begin > limit:
            frames.slice(range(offset + begin + limit, offset + at, limit), offset + record)
            frames.ends.append(offset + at)
            begin = at
        record = boundary = at
        if size - at < BLANK_SIZE:
            break
        at += _record_size(data, at, offset)
    if boundary > begin:
        frames.ends.append(offset + boundary)
    if frames.ends:
        frames.place = Place(frames.ends[-1])
    elif at > size and at - record > limit:
        # not one record ends here: as much of it as there is
        frames.slice([*range(offset + limit, offset + size, limit), offset + size], offset + record)
        frames.place = Place(offset + record, at - size)
    return frames


def begins_at(log: LogPort, offset: int) -> bool:
    """Whether a record begins at `offset`, or the log ends there. Raises what reading raises."""
    if offset >= log.committed.value:
        return True
    return _begins(log.read(offset, BLANK_SIZE), log.file_size - offset % log.file_size)


def large_record_at(log: LogPort, offset: int) -> Place | None:
    """If `offset`, where no record begins, lies in a record that is larger than a frame: that
    record, else None. May read a whole log file; raises what reading raises."""
    file_end = offset - offset % log.file_size + log.file_size
    at = base = max(file_end - log.file_size, log.min_offset)
    data = log.read(base, log.file_size)
    while at < offset:
        if not _begins(data[at - base : at - base + BLANK_SIZE], file_end - at):
            return None
        end = at + _record_size(data, at - base, base)
        if end > offset:
            return Place(at, end - offset) if end - at > FRAME_BYTES else None
        at = end
    return None


def _begins(head: Buffer, left: int) -> bool:
    """Whether `head` is the beginning of a record that fits into `left` bytes."""
    if len(head) < BLANK_SIZE:
        return False
    size, magic = SIZE_AND_MAGIC.unpack_from(head)
    return magic in _MAGICS and BLANK_SIZE <= size <= left


def _record_size(data: Buffer, at: int, offset: int) -> int:
    size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
    if magic not in _MAGICS or size < BLANK_SIZE:
        raise HaError(
            f"this node's log has no record at {offset + at}, and a RocketMQ slave cannot be told "
            "about a gap: see docs/damaged-store.md"
        )
    return int(size)

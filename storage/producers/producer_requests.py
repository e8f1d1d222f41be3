"""What is remembered of one producer: its last requests, and where their records are. And what
that says of a request that comes: `Outcome`.

    older: packed bytes, one object a request     newest: the one that may still continue
    [s-3][s-2][s-1]                               s

Only the newest request changes. The others are kept in the form in which a snapshot has them, a
sixth of what objects would take: a node remembers dozens of requests of thousands of producers.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, TypeAlias

from tandemlog.format.record.producer_mark import ProducerMark

from ..folds.fold import CountRecords

_HEAD: Final = Struct("<HHiqiiqq")
"""Bytes in all, extents, epoch, sequence, count, have, timestamp, checksum."""
_EXTENT: Final = Struct("<qiq")
_END: Final = Struct("<q")
_KEY: Final = Struct("<iq")
_KEY_AT: Final = 4
_NO_CHECKSUM: Final = -1

Key = tuple[int, int]
"""Epoch and sequence."""


@dataclass(frozen=True, slots=True)
class Extent:
    """`count` records of a request that lie end to end in the log."""

    physical_offset: int
    count: int
    end_offset: int


@dataclass(slots=True)
class Request:
    """One request: `have` of its `count` records are in the log, at `extents`; `timestamp` is the
    store time (ms) of the last of them."""

    epoch: int
    sequence: int
    count: int
    timestamp: int
    have: int = 0
    extents: list[Extent] = field(default_factory=list)
    checksum: int | None = None

    @property
    def key(self) -> Key:
        return self.epoch, self.sequence

    @property
    def complete(self) -> bool:
        return self.have >= self.count

    @property
    def end_offset(self) -> int:
        return self.extents[-1].end_offset

    def is_other(self, mark: ProducerMark) -> bool:
        """Whether the mark is of another request with the same number."""
        return None not in (self.checksum, mark.checksum) and self.checksum != mark.checksum

    def add(self, extents: Sequence[Extent]) -> None:
        """Records that came after those it has."""
        for extent in extents:
            self.have += extent.count
            last = self.extents[-1] if self.extents else None
            if last is not None and last.end_offset == extent.physical_offset:
                count = last.count + extent.count
                self.extents[-1] = Extent(last.physical_offset, count, extent.end_offset)
            else:
                self.extents.append(extent)

    def pack(self) -> bytes:
        extents = self.extents
        head = _HEAD.pack(
            _HEAD.size + len(extents) * _EXTENT.size,
            len(extents),
            self.epoch,
            self.sequence,
            self.count,
            self.have,
            self.timestamp,
            _NO_CHECKSUM if self.checksum is None else self.checksum,
        )
        pieces = [
            _EXTENT.pack(each.physical_offset, each.count, each.end_offset) for each in extents
        ]
        return b"".join((head, *pieces))


@dataclass(frozen=True, slots=True)
class New:
    """A request that was not stored: append all of it."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The first `have` records are stored: append the rest behind a mark with that index."""

    have: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Stored before, at `extents`; `end_offset` has to be confirmed before the request is answered.
    Empty and 0 if that was too long ago."""

    extents: tuple[Extent, ...] = ()
    end_offset: int = 0
    store_timestamp: int = 0


Outcome: TypeAlias = New | Resume | Duplicate


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The last request of a producer; `timestamp` is its store time in ms."""

    epoch: int
    last_sequence: int
    timestamp: int


def unpack(data: bytes) -> Request:
    """Raises struct.error or ValueError for what `pack` has not written."""
    size, extents, epoch, sequence, count, have, timestamp, checksum = _HEAD.unpack_from(data)
    if not size == len(data) == _HEAD.size + extents * _EXTENT.size:
        raise ValueError(f"a request of {len(data)} bytes, {size} said, with {extents} extents")
    return Request(
        epoch,
        sequence,
        count,
        timestamp,
        have,
        [Extent(*each) for each in _EXTENT.iter_unpack(data[_HEAD.size :])],
        None if checksum == _NO_CHECKSUM else checksum,
    )


def cut_request(request: Request, log_offset: int, count_records: CountRecords) -> bool:
    """Keep what lies below `log_offset`; False if that is nothing."""
    offsets = [extent.physical_offset for extent in request.extents]
    extents = request.extents[: bisect_left(offsets, log_offset)]
    lost = sum(each.count for each in request.extents)
    if extents:
        last = extents[-1]
        end = min(last.end_offset, log_offset)
        count, timestamp = count_records(last.physical_offset, end)
        if end < last.end_offset:
            extents[-1] = Extent(last.physical_offset, count, end)
        # the time too: what is left may have come before what was cut
        request.timestamp = timestamp or request.timestamp
    lost -= sum(each.count for each in extents)
    request.extents = extents
    request.have -= lost
    return bool(extents)


class Producer:
    """The requests of one producer, ascending. `floor` is the last one that was forgotten, `seen`
    when this process last had one of it (monotonic, seconds), `row` its part of a snapshot (None:
    to be encoded again), `holder` whose share it counts for: who sent its last request to this
    master, empty if not known."""

    __slots__ = ("_older", "floor", "holder", "newest", "row", "seen")

    def __init__(
        self, requests: Sequence[bytes] = (), floor: Key | None = None, seen: float = 0.0
    ) -> None:
        self._older = list(requests)
        self.newest: Request | None = None
        self.floor = floor
        self.seen = seen
        self.holder = ""
        self.row: bytes | None = None
        self._unpack_newest()

    @property
    def last(self) -> Key | None:
        return self.newest.key if self.newest is not None else self.floor

    @property
    def count(self) -> int:
        return len(self._older) + (self.newest is not None)

    def packed(self) -> list[bytes]:
        """All requests."""
        return self._older if self.newest is None else [*self._older, self.newest.pack()]

    def find(self, key: Key) -> Request | None:
        """The request, for looking at only."""
        if self.newest is not None and self.newest.key == key:
            return self.newest
        for request in reversed(self._older):
            key_there = _KEY.unpack_from(request, _KEY_AT)
            if key_there <= key:
                return unpack(request) if key_there == key else None
        return None

    def add(self, request: Request) -> None:
        """A request behind all others."""
        if self.newest is not None:
            self._older.append(self.newest.pack())
        self.newest = request

    def start_over(self) -> None:
        """Forget all earlier requests."""
        self._older.clear()
        self.newest = self.floor = None

    def drop_newest(self) -> None:
        self.newest = None
        self._unpack_newest()

    def keep(self, count: int, safe_offset: int) -> bool:
        """Forget the oldest requests down to `count`, but only those that end at or below log
        offset `safe_offset`; returns whether there were any."""
        older, dropped = self._older, 0
        while (
            self.count - dropped > count and _END.unpack_from(older[dropped], -8)[0] <= safe_offset
        ):
            dropped += 1
        if dropped:
            epoch, sequence = _KEY.unpack_from(older[dropped - 1], _KEY_AT)
            self.floor = epoch, sequence
            del older[:dropped]
        return dropped > 0

    def _unpack_newest(self) -> None:
        if self._older:
            self.newest = unpack(self._older.pop())

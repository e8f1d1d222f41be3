"""What each idempotent producer has stored: so that a request sent twice is stored once.

    producer p, epoch e    s-2        s-1        s               each request: count, records of
                         [4 of 4]   [9 of 9]   [2 of 5]          it in the log, where they are

A request's first record carries a mark (format.producer_mark): producer, epoch, sequence, number
of the record in the request, count of the request. Which records belong to it the bytes alone
tell: the marked one and those that follow it without a gap, unmarked and with the same store
timestamp, up to the count. So a request that a crash has torn is known to be incomplete on every
replica. When it is sent again the master stores what is missing, behind a mark whose index says
where it goes on: the first of the missing records is framed anew with it.

That needs one thing of the master: after a restart or a truncation the next store timestamp is
later than that of the last record, else the records of a stranger would count as the missing ones.

`next_offset` is the position of the log up to which the table is true. On a master `record` moves
it with the append, elsewhere `take` with the dispatch; both may come for the same records. Dispatch
may be so quick that it comes between an append and its `record`, and then with the records of one
file of two: what `record` says would be known in part and skipped whole. So the two are one step,
`appending`, for everybody else.
"""

import json
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.errors import FormatError
from tandemlog.format.fast_crc import crc32
from tandemlog.format.producer_mark import ProducerMark, parse_producer_mark

from .producer_refusals import bad_mark, conflict, fenced, gap, other_request, unknown

VERSION = 1
ANYWHERE = 1 << 63


@dataclass(frozen=True, slots=True)
class Extent:
    """`count` records of a request that lie end to end in the log."""

    physical_offset: int
    count: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class New:
    """A request that was not stored: append all of it."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The first `have` records are stored, the rest is not: append it behind a mark with that
    index."""

    have: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Stored before. Where, unless it is too long ago: `extents` is empty then; `end_offset` is
    the position to be confirmed before the request is answered, 0 for long ago."""

    extents: tuple[Extent, ...] = ()
    end_offset: int = 0
    store_timestamp: int = 0


Outcome: TypeAlias = New | Resume | Duplicate
CountRecords: TypeAlias = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The last request of a producer; `timestamp` is its store time in ms."""

    epoch: int
    last_sequence: int
    timestamp: int


@dataclass(slots=True)
class _Request:
    epoch: int
    sequence: int
    count: int
    timestamp: int
    have: int = 0
    extents: list[Extent] = field(default_factory=list)
    checksum: int | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.epoch, self.sequence

    def is_other(self, checksum: int | None) -> bool:
        """Whether a request under the same number cannot be this one."""
        return checksum is not None and self.checksum is not None and checksum != self.checksum

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


@dataclass(slots=True)
class _Producer:
    # by (epoch, sequence), ascending; `floor` is the last one that was forgotten
    requests: deque[_Request] = field(default_factory=deque)
    floor: tuple[int, int] | None = None

    @property
    def last(self) -> tuple[int, int] | None:
        return self.requests[-1].key if self.requests else self.floor

    def find(self, key: tuple[int, int]) -> _Request | None:
        for request in reversed(self.requests):
            if request.key <= key:
                return request if request.key == key else None
        return None


class ProducerTable:
    """See the module; thread-safe.

    `kept` is how many requests of a producer are remembered, and more while the oldest of them
    does not lie below `settled()`: what is forgotten is answered as stored, so it must be where no
    power cut and no truncation comes any more.
    """

    def __init__(self, *, kept: int = 64, settled: Callable[[], int] = lambda: ANYWHERE) -> None:
        self.next_offset = 0
        self._kept = kept
        self._settled = settled
        self._producers: dict[str, _Producer] = {}
        # the request whose records may go on at next_offset
        self._open: tuple[str, _Request] | None = None
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._producers)

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Around an append and its `record`: nobody takes or cuts anything in between."""
        with self._lock:
            yield

    def describe(self, producer_id: str) -> ProducerState | None:
        """The producer's last request, None for one that is not known."""
        with self._lock:
            producer = self._producers.get(producer_id)
            if producer is None or producer.last is None:
                return None
            timestamp = producer.requests[-1].timestamp if producer.requests else 0
            return ProducerState(*producer.last, timestamp)

    def check(self, mark: ProducerMark, count: int) -> Outcome:
        """What to do with a request of `count` records.

        Raises BatchRefusedError: SEQUENCE_GAP, PRODUCER_FENCED, UNKNOWN_PRODUCER,
        SEQUENCE_CONFLICT (a repeated sequence with another count or checksum), BAD_RECORD (a mark
        that does not fit the request).
        """
        with self._lock:
            producer = self._producers.get(mark.producer_id)
            request = producer.find((mark.epoch, mark.sequence)) if producer is not None else None
            if request is not None and request.count != count:
                raise conflict(mark, request.count, count)
            if request is not None and request.is_other(mark.checksum):
                raise other_request(mark)
            if mark.index != 0 or mark.count != count:
                raise bad_mark(mark, count)
            last = producer.last if producer is not None else None
            if producer is None or last is None:
                if mark.sequence != 0:
                    raise unknown(mark)
                return New()
            epoch, sequence = last
            if mark.epoch < epoch:
                raise fenced(mark, epoch)
            if mark.epoch > epoch:
                if mark.sequence != 0:
                    raise gap(mark, 0, f"epoch {mark.epoch} is new")
                return New()
            newest = producer.requests[-1] if producer.requests else None
            if newest is not None and newest.have < newest.count and mark.sequence > sequence:
                raise gap(mark, sequence, f"of which {newest.have} of {newest.count} are stored")
            if mark.sequence > sequence + 1:
                raise gap(mark, sequence + 1, "in the order in which they were numbered")
            if mark.sequence == sequence + 1:
                return New()
            if request is None:
                return Duplicate()
            if request.have < request.count:
                return Resume(request.have)
            return Duplicate(
                tuple(request.extents), request.extents[-1].end_offset, request.timestamp
            )

    def record(self, mark: ProducerMark, extents: Sequence[Extent], store_timestamp: int) -> None:
        """A master appended the records of a request from mark.index on, in log order."""
        with self._lock:
            self._open = None
            request = self._request(mark, store_timestamp)
            if request is not None:
                request.add(extents)
            self.next_offset = max(self.next_offset, extents[-1].end_offset)

    def take(
        self,
        physical_offset: NDArray[np.int64],
        size: NDArray[np.integer],
        store_timestamp: NDArray[np.int64],
        marks: Sequence[tuple[int, bytes]],
        end_offset: int,
    ) -> list[str]:
        """Records of the log in order, columns of n, up to `end_offset`; `marks` are (record,
        value as stored). Those below next_offset are passed over. Answers what was wrong with
        marks that are none: their records count as unmarked."""
        with self._lock:
            count = len(physical_offset)
            first = int(np.searchsorted(physical_offset, self.next_offset))
            parsed, faults = _parsed([each for each in marks if each[0] >= first], physical_offset)
            columns = _Columns(physical_offset, size, store_timestamp)
            if self._open is not None and first < count:
                stop = parsed[0][0] if parsed else count
                self._extend(*self._open, columns, first, stop)
            for number, (row, mark) in enumerate(parsed):
                stop = parsed[number + 1][0] if number + 1 < len(parsed) else count
                request = self._request(mark, int(store_timestamp[row]))
                self._open = None
                if request is not None:
                    self._extend(mark.producer_id, request, columns, row, stop)
            self.next_offset = max(self.next_offset, end_offset)
        return faults

    def truncate(self, log_offset: int, count_records: CountRecords) -> None:
        """Forget what begins at or after `log_offset`; `count_records(start, end)` counts the
        records of a stretch of the log, and says the store time (ms) of the last one: 0 and 0 for
        a stretch that the log does not hold any more."""
        with self._lock:
            if log_offset >= self.next_offset:
                return
            self._open = None
            for producer_id, producer in list(self._producers.items()):
                requests, cut = producer.requests, False
                while requests and not cut and requests[-1].extents[-1].end_offset > log_offset:
                    cut = _cut(requests[-1], log_offset, count_records)
                    if not cut:
                        requests.pop()
                last = requests[-1] if requests else None
                if last is not None and last.have < last.count:
                    end = last.extents[-1].end_offset
                    # it goes on at the log's end, perhaps behind a BLANK: others do not follow it
                    if end == log_offset or (cut and not count_records(end, log_offset)[0]):
                        self._open = (producer_id, last)
                if not requests and producer.floor is None:
                    del self._producers[producer_id]
            self.next_offset = log_offset

    def forget(self, before_ms: int) -> int:
        """Drop producers whose last request was stored before `before_ms`; answers how many."""
        with self._lock:
            old = [
                producer_id
                for producer_id, producer in self._producers.items()
                if not producer.requests or producer.requests[-1].timestamp < before_ms
            ]
            for producer_id in old:
                del self._producers[producer_id]
            return len(old)

    def reset(self, log_offset: int) -> None:
        """Know nobody; the log begins at `log_offset`."""
        with self._lock:
            self._producers.clear()
            self._open = None
            self.next_offset = log_offset

    def snapshot(self) -> bytes:
        """The whole table and the log offset that it is true for; see `restore`."""
        with self._lock:
            document = {
                "version": VERSION,
                "log_offset": self.next_offset,
                "open": self._open[0] if self._open is not None else None,
                "producers": {
                    producer_id: {
                        "floor": producer.floor,
                        "requests": [_as_row(request) for request in producer.requests],
                    }
                    for producer_id, producer in self._producers.items()
                },
            }
        text = json.dumps(document, separators=(",", ":")).encode()
        return b"%s\n%08x\n" % (text, crc32(text))

    def restore(self, data: bytes) -> None:
        """Become what `snapshot` wrote; raises FormatError for anything else and changes nothing
        then."""
        text, _, checksum = data.partition(b"\n")
        if checksum.strip() != b"%08x" % crc32(text):
            raise FormatError("producer table: its checksum is wrong")
        document = json.loads(text)
        if document.get("version") != VERSION:
            raise FormatError(f"producer table: its version is not {VERSION}")
        try:
            producers = {
                producer_id: _Producer(
                    deque(_from_row(row) for row in found["requests"]),
                    tuple(found["floor"]) if found["floor"] is not None else None,
                )
                for producer_id, found in document["producers"].items()
            }
        except (KeyError, TypeError, ValueError) as fault:
            raise FormatError(f"producer table: it has another form: {fault!r}") from fault
        with self._lock:
            self._producers = producers
            self.next_offset = document["log_offset"]
            self._open = None
            if document["open"] is not None:
                self._open = (document["open"], producers[document["open"]].requests[-1])

    # ---- inner parts; the caller holds the lock

    def _request(self, mark: ProducerMark, timestamp: int) -> _Request | None:
        """The request that records from mark.index on go to; None where they are known."""
        producer = self._producers.setdefault(mark.producer_id, _Producer())
        key = (mark.epoch, mark.sequence)
        request = producer.find(key)
        if request is None:
            if producer.last is not None and key <= producer.last:
                return None
            # Where the log does not begin with it, what came before is gone and was stored.
            request = _Request(*key, mark.count, timestamp, have=mark.index, checksum=mark.checksum)
            producer.requests.append(request)
            self._forget_oldest(producer)
        elif mark.index < request.have:
            return None
        request.timestamp = timestamp
        return request

    def _forget_oldest(self, producer: _Producer) -> None:
        requests = producer.requests
        if len(requests) <= self._kept:
            return
        settled = self._settled()
        while len(requests) > self._kept and requests[0].extents[-1].end_offset <= settled:
            producer.floor = requests.popleft().key

    def _extend(
        self, producer_id: str, request: _Request, columns: "_Columns", first: int, stop: int
    ) -> None:
        """Add the records from row `first` on that belong to the request, before row `stop`."""
        stop = min(stop, first + request.count - request.have)
        other = np.flatnonzero(columns.store_timestamp[first:stop] != request.timestamp)
        last = first + int(other[0]) if len(other) else stop
        if last > first:
            request.add(columns.extents(first, last))
        complete = request.have >= request.count
        at_end = last == len(columns.physical_offset)
        self._open = (producer_id, request) if at_end and not complete else None


@dataclass(frozen=True, slots=True)
class _Columns:
    physical_offset: NDArray[np.int64]
    size: NDArray[np.integer]
    store_timestamp: NDArray[np.int64]

    def extents(self, first: int, last: int) -> list[Extent]:
        """Rows first .. last-1, cut where the log goes on in the next file."""
        offsets = self.physical_offset[first:last]
        ends = offsets + self.size[first:last]
        cuts = [0, *(np.flatnonzero(offsets[1:] != ends[:-1]) + 1).tolist(), last - first]
        return [
            Extent(int(offsets[start]), stop - start, int(ends[stop - 1]))
            for start, stop in pairwise(cuts)
        ]


def _parsed(
    marks: Sequence[tuple[int, bytes]], physical_offset: NDArray[np.int64]
) -> tuple[list[tuple[int, ProducerMark]], list[str]]:
    """The marks that are some, and what is wrong with the others."""
    parsed, faults = [], []
    for row, value in marks:
        try:
            parsed.append((row, parse_producer_mark(value)))
        except FormatError as fault:
            faults.append(f"record at {int(physical_offset[row])}: {fault}")
    return parsed, faults


def _cut(request: _Request, log_offset: int, count_records: CountRecords) -> bool:
    """Keep what lies below `log_offset`; False where that is nothing."""
    offsets = [extent.physical_offset for extent in request.extents]
    kept = request.extents[: bisect_left(offsets, log_offset)]
    lost = sum(each.count for each in request.extents)
    if kept:
        last = kept[-1]
        end = min(last.end_offset, log_offset)
        count, timestamp = count_records(last.physical_offset, end)
        if end < last.end_offset:
            kept[-1] = Extent(last.physical_offset, count, end)
        # the time too: what is left may have come before what was cut
        request.timestamp = timestamp or request.timestamp
    lost -= sum(each.count for each in kept)
    request.extents = kept
    request.have -= lost
    return bool(kept)


def _as_row(request: _Request) -> list[object]:
    extents = [[each.physical_offset, each.count, each.end_offset] for each in request.extents]
    return [
        request.epoch, request.sequence, request.count, request.timestamp, request.have, extents,
        request.checksum,
    ]  # fmt: skip


def _from_row(row: list[Any]) -> _Request:
    epoch, sequence, count, timestamp, have, extents, checksum = row
    extents = [Extent(*each) for each in extents]
    return _Request(epoch, sequence, count, timestamp, have, extents, checksum)

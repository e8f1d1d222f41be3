"""What each idempotent producer has stored, so that a request sent twice is stored once.

    producer p, epoch e    s-2        s-1        s               each request: count, records of
                         [4 of 4]   [9 of 9]   [2 of 5]          it in the log, where they are

A request's first record carries a mark (format.producer_mark): producer, epoch, sequence, number
of the record in the request, count of the request. The bytes alone show which records belong to a
request: the marked one and those that follow it without a gap, unmarked and with the same store
timestamp, up to the count. So every replica knows that a request torn by a crash is
incomplete. When it is sent again the master stores what is missing, behind a mark whose index says
where it continues: the first of the missing records is framed again with it.

For this the master must ensure one thing: after a restart or a truncation the next store timestamp
is later than that of the last record. Otherwise records of another client would count as the
missing ones.

`next_offset` is the position of the log up to which the table is true. On a master `record` moves
it with the append, elsewhere `replay` with the dispatch; both may come for the same records.
Dispatch may run between an append and its `record`, with the records of only one of two files: then
`record` would find its request known in part and skip all of it. So for other threads the two are
one step, `appending`.

Each process is a new producer. A producer is forgotten when the log's own store time has advanced
by the retention since its last request, or if there are more than `limit`: then the one that has
been silent longest goes first. But a producer is kept while this process has had a request of it
within GRACE_S: a clock that jumps would make all of them unknown at once, in the middle of their
retries. If none can be forgotten for that, the holder (identity, or host) with most producers loses
the one that has been silent longest to a new producer of another holder; only a new one of that
holder itself has to wait. After GRACE_S of silence only the last few requests are kept.

Each node forgets by itself. So in the log a producer may begin again with sequence 0 while another
node still knows it: the master had forgotten it, and it starts over on every node.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.errors import FormatError
from tandemlog.format.record.producer_mark import ProducerMark, parse_producer_mark

from ..folds.dispatch_batch import DispatchBatch
from ..folds.fold import ANYWHERE, CountRecords, Snapshot
from ..shares import Shares
from .producer_requests import (
    Duplicate,
    Extent,
    New,
    Outcome,
    Producer,
    ProducerState,
    Request,
    Resume,
    cut_request,
)
from .producer_snapshot import TableSnapshot, decode, encode_row
from .refusals import bad_mark, conflict, fenced, gap, other_request, too_many, unknown

GRACE_S: Final = 3600.0
IDLE_KEPT: Final = 4
_STEP: Final = 128
"""Rows of a snapshot that are encoded while others wait."""


class ProducerTable:
    """See the module; thread-safe. A fold of the log (storage/folds).

    `kept` is how many requests of a producer are remembered, and more while the oldest of them
    does not lie below `safe_offset()`: a forgotten request is answered as stored, so it must be
    where no power cut and no truncation comes any more. `limit` is how many producers are kept,
    `monotonic` this process's own time in seconds.
    """

    def __init__(
        self,
        *,
        kept: int = 64,
        limit: int = 20_000,
        safe_offset: Callable[[], int] = lambda: ANYWHERE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = "producers"
        self.next_offset = 0
        # counts every change but forgetting
        self.changes = 0
        self._generation = 0
        self._kept = kept
        self._limit = limit
        self._safe_offset = safe_offset
        self._monotonic = monotonic
        # the one whose last request is the oldest first
        self._producers: dict[str, Producer] = {}
        self._shares = Shares(limit)
        # store time of the newest record: a wrong one before it no longer counts
        self._newest_time = 0
        self._restored_at = float("-inf")
        # the log offset that the table on the disk is true for, None if there is none
        self.noted: int | None = None
        # the request whose records may continue at next_offset
        self._open: tuple[str, Request] | None = None
        # those whose row of the snapshot has to be rebuilt
        self._stale: set[str] = set()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._producers)

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Around an append and its `record`: no other thread takes or cuts anything in between."""
        with self._lock:
            yield

    def describe(self, producer_id: str) -> ProducerState | None:
        """The producer's last request, None for one that is not known."""
        with self._lock:
            producer = self._producers.get(producer_id)
            if producer is None or producer.last is None:
                return None
            timestamp = producer.newest.timestamp if producer.newest is not None else 0
            return ProducerState(*producer.last, timestamp)

    def check(self, mark: ProducerMark, count: int, holder: str = "") -> Outcome:
        """What to do with a request of `count` records that `holder` sends.

        Raises BatchRefusedError: SEQUENCE_GAP, PRODUCER_FENCED, UNKNOWN_PRODUCER,
        SEQUENCE_CONFLICT (a repeated sequence with another count or checksum), BAD_RECORD (a mark
        that does not fit the request). StoreBusyError: a new producer, and no room for one.
        """
        with self._lock:
            producer = self._producers.get(mark.producer_id)
            request = producer.find((mark.epoch, mark.sequence)) if producer is not None else None
            if request is not None and request.count != count:
                raise conflict(mark, request.count, count)
            if request is not None and request.is_other(mark):
                raise other_request(mark)
            if mark.index != 0 or mark.count != count:
                raise bad_mark(mark, count)
            last = producer.last if producer is not None else None
            if producer is None or last is None:
                if mark.sequence != 0:
                    raise unknown(mark)
                self._find_room(mark, holder)
                return New()
            epoch, sequence = last
            if mark.epoch < epoch:
                raise fenced(mark, epoch)
            if mark.epoch > epoch:
                if mark.sequence != 0:
                    raise gap(mark, 0, f"epoch {mark.epoch} is new")
                return New()
            newest = producer.newest
            if newest is not None and not newest.complete and mark.sequence > sequence:
                raise gap(mark, sequence, f"of which {newest.have} of {newest.count} are stored")
            if mark.sequence > sequence + 1:
                raise gap(mark, sequence + 1, "in the order in which they were numbered")
            if mark.sequence == sequence + 1:
                return New()
            if request is None:
                return Duplicate()
            if not request.complete:
                if request is not newest:
                    raise gap(mark, sequence + 1, "this one was left incomplete")
                return Resume(request.have)
            return Duplicate(tuple(request.extents), request.end_offset, request.timestamp)

    def record(
        self, mark: ProducerMark, extents: Sequence[Extent], store_timestamp: int, holder: str = ""
    ) -> None:
        """A master appended the records of a request of `holder` from mark.index on, in log
        order."""
        with self._lock:
            if extents[-1].end_offset <= self.next_offset:
                return  # dispatch was here before
            self._open = None
            request = self._request(mark, store_timestamp, self._monotonic())
            if request is not None:
                request.add(extents)
            self._assign_holder(self._producers[mark.producer_id], holder)
            self.next_offset = extents[-1].end_offset
            self.changes += 1

    def replay(
        self,
        physical_offset: NDArray[np.int64],
        size: NDArray[np.integer],
        store_timestamp: NDArray[np.int64],
        marks: Sequence[tuple[int, bytes]],
        end_offset: int,
    ) -> list[str]:
        """Records of the log in order, columns of n, up to `end_offset`; `marks` are (record,
        value as stored). Those below next_offset are skipped. Returns what was wrong with invalid
        marks: their records count as unmarked."""
        with self._lock:
            if end_offset <= self.next_offset:
                return []
            now, count = self._monotonic(), len(physical_offset)
            first = int(physical_offset.searchsorted(self.next_offset))
            parsed, faults = _parsed([each for each in marks if each[0] >= first], physical_offset)
            columns = _Columns(physical_offset, size, store_timestamp)
            if self._open is not None and first < count:
                stop = parsed[0][0] if parsed else count
                self._extend(*self._open, columns, first, stop)
            for number, (row, mark) in enumerate(parsed):
                stop = parsed[number + 1][0] if number + 1 < len(parsed) else count
                request = self._request(mark, int(store_timestamp[row]), now)
                self._open = None
                if request is not None:
                    self._extend(mark.producer_id, request, columns, row, stop)
            if first < count:
                self._newest_time = int(store_timestamp[-1])
            while len(self._producers) > self._limit:
                self._forget(next(iter(self._producers)))
            self.next_offset = end_offset
            self.changes += 1
        return faults

    def apply(self, batch: DispatchBatch) -> list[str]:
        """`replay` of a batch.

        A record that damage has left out counts if only its head is damaged and the rest still
        identifies it. Without it a request of six records with a damaged third would never be
        complete: a retry would store its last record once more, and the producer's next request
        would be refused.
        """
        lost, columns = batch.lost, batch.columns
        if lost is not None:
            self.replay(
                np.array([batch.start], np.int64),
                np.array([batch.end - batch.start], np.int64),
                np.array([lost.store_timestamp], np.int64),
                [(0, lost.mark)] if lost.mark else [],
                batch.end,
            )
        return self.replay(
            columns.physical_offset,
            columns.size,
            columns.store_timestamp,
            columns.producer_marks,
            batch.end,
        )

    def truncate(self, log_offset: int, count_records: CountRecords) -> None:
        """Forget what begins at or after `log_offset`."""
        with self._lock:
            if log_offset >= self.next_offset:
                return
            self._open = None
            for producer_id, producer in list(self._producers.items()):
                cut = False
                while (last := producer.newest) is not None and last.end_offset > log_offset:
                    self._stale.add(producer_id)
                    cut = cut_request(last, log_offset, count_records)
                    if cut:
                        break
                    producer.drop_newest()
                if last is not None and not last.complete:
                    end = last.end_offset
                    # it continues at the log's end, perhaps behind a BLANK: others do not follow it
                    if end == log_offset or (cut and not count_records(end, log_offset)[0]):
                        self._open = (producer_id, last)
                if producer.last is None:
                    self._forget(producer_id)
            self._begin_generation(log_offset)

    def forget(self, retention_ms: int) -> int:
        """Drop producers whose last request was stored `retention_ms` before the newest record;
        returns how many. Other silent producers keep only their last requests."""
        with self._lock:
            if self._monotonic() - self._restored_at < GRACE_S:
                return 0  # by their times alone, as for room: a clock may have jumped
            before, idle = self._newest_time - retention_ms, self._monotonic() - GRACE_S
            silent = [each for each, producer in self._producers.items() if producer.seen <= idle]
            old = 0
            for producer_id in silent:
                producer = self._producers[producer_id]
                if producer.newest is None or producer.newest.timestamp < before:
                    self._forget(producer_id)
                    old += 1
                elif producer.count > IDLE_KEPT and producer.keep(IDLE_KEPT, self._safe_offset()):
                    self._stale.add(producer_id)
            return old

    def reset(self, log_offset: int) -> None:
        with self._lock:
            self._producers.clear()
            self._count_holders()
            self._stale.clear()
            self._open = None
            self._newest_time = 0
            self.noted = None
            self._begin_generation(log_offset)

    def snapshot(self) -> TableSnapshot:
        """The whole table, for `restore`. Other threads wait only while a few rows are encoded, and
        at the end while the list of rows is copied."""
        while True:
            with self._lock:
                for producer_id in list(islice(self._stale, _STEP)):
                    self._stale.discard(producer_id)
                    producer = self._producers[producer_id]
                    producer.row = encode_row(producer_id, producer)
                if not self._stale:
                    goes_on = self._open[0] if self._open is not None else None
                    rows = [each.row for each in self._producers.values() if each.row is not None]
                    named = (each.holder for each in self._producers.values())
                    holders = [(name, len(list(those))) for name, those in groupby(named)]
                    return TableSnapshot(
                        self.next_offset, self._generation, self.changes, goes_on, rows, holders
                    )
            time.sleep(0)  # a lock that is taken again at once never goes to another thread

    def holds(self, snapshot: Snapshot) -> bool:
        return isinstance(snapshot, TableSnapshot) and snapshot.generation == self._generation

    def needs_from(self) -> int:
        """Producers whose requests have expired are passed on apart (producer_begins.py)."""
        return ANYWHERE

    def restore(self, data: bytes) -> None:
        """Become what `snapshot` wrote. Raises FormatError, and changes nothing then."""
        restored = decode(data, self._monotonic())
        with self._lock:
            self._producers = restored.producers
            self._count_holders()
            self._stale.clear()
            self._open = None
            newest = [each.newest for each in self._producers.values() if each.newest is not None]
            self._newest_time = newest[-1].timestamp if newest else 0
            self._judge_silence(self._producers)
            self.noted = restored.log_offset
            if restored.open is not None:
                request = self._producers[restored.open].newest
                assert request is not None  # decode has looked
                self._open = (restored.open, request)
            self._begin_generation(restored.log_offset)

    def add_missing(self, data: bytes) -> None:
        """Add the producers of another store's snapshot that are not known here, as far as there is
        room: that store has the log below (producer_begins.py). Raises FormatError."""
        restored = decode(data, self._monotonic())
        with self._lock:
            room = max(self._limit - len(self._producers), 0)
            new = [item for item in restored.producers.items() if item[0] not in self._producers]
            added = dict(new[max(len(new) - room, 0) :])
            # they come before all that is in the log
            self._producers = added | self._producers
            self._count_holders()
            times = [each.newest.timestamp for each in added.values() if each.newest is not None]
            self._newest_time = self._newest_time or (times[-1] if times else 0)
            self._judge_silence(added)
            if restored.open in added and self.next_offset == restored.log_offset:
                request = added[restored.open].newest
                assert request is not None  # decode has looked
                self._open = (restored.open, request)
            self.changes += 1

    def keep_below(self, log_offset: int, count: int) -> None:
        """Keep only what lies below `log_offset`, the start of a file: `count` requests of each
        producer. One that has none there is forgotten: its forgotten requests may lie above."""
        with self._lock:
            self.truncate(log_offset, lambda _start, _end: (0, 0))
            if self.next_offset < log_offset:
                self._open = None
            for producer_id, producer in list(self._producers.items()):
                if producer.newest is None:
                    self._forget(producer_id)
                elif producer.keep(count, log_offset):
                    self._stale.add(producer_id)
            self.next_offset = log_offset

    # ---- inner parts; the caller holds the lock

    def _judge_silence(self, restored: dict[str, Producer]) -> None:
        """This process has had no request of these: they make room by the log's own time, or a full
        table would accept no new producer for GRACE_S after a restart."""
        self._restored_at = self._monotonic()
        for producer in restored.values():
            newest = producer.newest
            silent = self._newest_time - (0 if newest is None else newest.timestamp)
            if silent > GRACE_S * 1000:
                producer.seen = self._restored_at - GRACE_S

    def _begin_generation(self, log_offset: int) -> None:
        self.next_offset = log_offset
        if self.noted is not None:
            self.noted = min(self.noted, log_offset)
        self._generation += 1
        self.changes += 1

    def _forget(self, producer_id: str) -> None:
        self._shares.give_back(self._producers.pop(producer_id).holder)
        self._stale.discard(producer_id)
        if self._open is not None and self._open[0] == producer_id:
            self._open = None

    def _find_room(self, mark: ProducerMark, holder: str) -> None:
        if len(self._producers) < self._limit:
            return
        oldest = next(iter(self._producers))
        if self._producers[oldest].seen > self._monotonic() - GRACE_S:
            holders = self._shares.holders
            busiest = max(holders, key=holders.__getitem__)
            if holders[busiest] <= self._shares.of(holder) + 1:
                raise too_many(mark, self._limit, self._shares.of(holder))
            oldest = next(name for name, each in self._producers.items() if each.holder == busiest)
        self._forget(oldest)

    def _assign_holder(self, producer: Producer, holder: str) -> None:
        if producer.holder != holder:
            self._shares.give_back(producer.holder)
            producer.holder = holder
            self._shares.take(holder)

    def _count_holders(self) -> None:
        """Again, of all producers."""
        self._shares = Shares(self._limit)
        for each in self._producers.values():
            self._shares.take(each.holder)

    def _request(self, mark: ProducerMark, timestamp: int, now: float) -> Request | None:
        """The request to which records from mark.index on belong; None if they are known."""
        producer = self._producers.pop(mark.producer_id, None)
        if producer is None:
            producer = Producer()
            self._shares.take(producer.holder)
        self._producers[mark.producer_id] = producer  # the newest of all
        self._stale.add(mark.producer_id)
        self._newest_time = timestamp
        producer.seen = now
        key, last = (mark.epoch, mark.sequence), producer.last
        newest = producer.newest
        if mark.index and newest is not None and newest.key == key:
            if mark.index < newest.have:
                return None
            newest.timestamp = timestamp
            return newest
        if last is not None and key <= last:
            if mark.sequence or mark.index:
                return None
            producer.start_over()
        # if the log does not begin with the request, its first records were stored and have expired
        request = Request(*key, mark.count, timestamp, have=mark.index, checksum=mark.checksum)
        producer.add(request)
        if producer.count > self._kept:
            producer.keep(self._kept, self._safe_offset())
        return request

    def _extend(
        self, producer_id: str, request: Request, columns: "_Columns", first: int, stop: int
    ) -> None:
        """Add the records from row `first` on that belong to the request, before row `stop`."""
        stop = min(stop, first + request.count - request.have)
        other = np.flatnonzero(columns.store_timestamp[first:stop] != request.timestamp)
        last = first + int(other[0]) if len(other) else stop
        if last > first:
            request.add(columns.extents(first, last))
            self._stale.add(producer_id)
        at_end = last == len(columns.physical_offset)
        self._open = (producer_id, request) if at_end and not request.complete else None


@dataclass(frozen=True, slots=True)
class _Columns:
    physical_offset: NDArray[np.int64]
    size: NDArray[np.integer]
    store_timestamp: NDArray[np.int64]

    def extents(self, first: int, last: int) -> list[Extent]:
        """Rows first .. last-1, cut where the log continues in the next file."""
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
    """The valid marks, and what is wrong with the others."""
    parsed, faults = [], []
    for row, value in marks:
        try:
            parsed.append((row, parse_producer_mark(value)))
        except FormatError as error:
            faults.append(f"record at {int(physical_offset[row])}: {error}")
    return parsed, faults

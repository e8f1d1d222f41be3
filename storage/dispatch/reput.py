"""Dispatch: what is confirmed in the log goes into consume queues, index and folds.

    log     ......................................................... confirmed
                    index.next            queues.next = `reputed`
                      |--- catch-up --->|   |---- main batches ----->|

It works the same on a master and a slave. Every dispatcher knows its position and skips what it
already has, so a batch may be dispatched again at any time. A dispatcher that lags behind the
queues (the index after a full disk, a fold with an older snapshot, a queue that is rebuilt) gets
its own batches between the main ones, until it has caught up.

Bytes in the log that are not a record stop dispatch until the log is truncated: no dispatcher gets
anything after them, and `failure` and `reputed` show where. If the cause may go away by itself or
with an operator's help (a full disk, a read or write error, no free descriptor), dispatch waits:
`trouble` names the cause, and the same batch is tried again.

The thread is optional: recovery, tools and tests call `run_once` or `run_to`. It lets data gather
between two rounds:

    requests   | | | | | | | | | | | |
    rounds     ██······██······██        · until GATHER_S after the round began

A round costs about half a millisecond however little it dispatches, and wakes waiting long polls,
so a round for each of many small requests would cost more than the messages do. This delays a
message by GATHER_S at most. With MANY_BYTES left, and after a time without messages, the next round
begins at once. After one of less than FEW_BYTES it begins PAUSE_FACTOR times later than the round
took: where many callers wait for each of their sends, dispatch takes a quarter of a processor, not
all of it.
"""

import logging
import threading
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.dispatch import unit_columns

from ..clock import Clock
from ..errors import CorruptStoreError, StoreError
from ..folds.dispatch_batch import DispatchBatch
from ..folds.fold import ANYWHERE, Fold
from ..folds.service_fold import ServiceFold
from ..index.index_service import IndexService
from ..listeners import Listeners
from ..positions import Position
from ..queues.consume_queue_store import ConsumeQueueStore
from ..queues.queue_table import QueueTable, register_queue, register_queues
from ..state_files.time_steps import TimeSteps
from .dispatch_source import BATCH_BYTES, BlockPort, DispatchSource
from .fold_again import FoldAgain
from .missed_records import EntriesCheck, MissedRecords

logger = logging.getLogger(__name__)

Listener = Callable[[NDArray[np.int64]], None]

IDLE_WAIT_S = 5.0
RETRY_WAIT_S = 1.0
INDEX_RETRY_S = 30.0
GATHER_S: Final = 0.005
FEW_BYTES: Final = 32 << 10
MANY_BYTES: Final = 256 << 10
PAUSE_FACTOR: Final = 3.0


def gathering_s(dispatched: int, waiting: int, spent_s: float) -> float:
    """Seconds to wait before the next round, after one of `dispatched` bytes of log that took
    `spent_s`, while `waiting` bytes are confirmed by now."""
    if waiting >= MANY_BYTES:
        return 0.0
    if dispatched < FEW_BYTES:
        return min(PAUSE_FACTOR * spent_s, GATHER_S)
    return max(0.0, GATHER_S - spent_s)


@dataclass(frozen=True, slots=True)
class Dispatchers:
    """Where records go: the queues, every fold, and the index; none where the store keeps none."""

    table: QueueTable
    queues: ConsumeQueueStore
    folds: Sequence[Fold]
    index: IndexService | None = None
    time_steps: TimeSteps | None = None

    @property
    def next_offset(self) -> int:
        """Below this log offset queues and folds have everything; the index may be behind."""
        return min(self.queues.next_offset, *(fold.next_offset for fold in self.folds))


@dataclass(slots=True)
class _Rebuild:
    """Queues that are rebuilt, and how far that has come."""

    queues: frozenset[int]
    position: int


class ReputService:
    """See the module. One thread at a time dispatches; `truncate` waits for it."""

    def __init__(
        self,
        source: DispatchSource,
        dispatchers: Dispatchers,
        confirmed: Position,
        reputed: Position,
        clock: Clock,
        *,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self.reputed = reputed
        self.failure: StoreError | None = None
        self.trouble: StoreError | None = None
        # store time (ms) of the newest record dispatched, and how much this process has dispatched
        self.store_timestamp = 0
        self.messages = 0
        self.bytes = 0
        self._source = source
        self._to = dispatchers
        self._confirmed = confirmed
        self._clock = clock
        self._batch_bytes = batch_bytes
        self._listeners: Listeners[[NDArray[np.int64]]] = Listeners()
        self._rebuild: _Rebuild | None = None
        self._again: list[FoldAgain] = []
        self._index_retry_at = 0.0
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._stop_listening: Callable[[], None] | None = None

    # ---- dispatching

    def run_once(self, limit: int | None = None) -> int:
        """Dispatch one batch to all dispatchers that have not had it, and one to those that lag;
        nothing beyond log offset `limit` (default: what is confirmed).

        Returns how many bytes of log were processed, 0 when all is done. Raises CorruptStoreError
        if the log has no record; DiskFullError if a queue has no space, UnreadableError or
        StoreError if the disk cannot read or write: the next call then tries again.
        """
        with self._lock:
            if self.failure is not None:
                raise self.failure
            end = self._confirmed.value if limit is None else limit
            done = self._main_batch(end) + self._catch_up() + self._rebuild_batch()
            return done + self._again_batch()

    def run_to(
        self, limit: int | None = None, progress: Callable[[int], None] | None = None
    ) -> int:
        """run_once until all is done; returns the position reached. Calls `progress(bytes)` after
        each step, with the bytes of log that it processed."""
        while step := self.run_once(limit):
            if progress is not None:
                progress(step)
        return self.reputed.value

    def truncate(self, log_offset: int) -> None:
        """Everything dispatched at or after `log_offset` is removed everywhere. The log below it
        must still be readable. Raises StoreError if a file cannot be written."""
        with self._lock:
            to = self._to
            for fold in to.folds:
                fold.truncate(log_offset, self._source.count_records)
            to.queues.truncate(log_offset)
            if to.time_steps is not None:
                to.time_steps.truncate(log_offset)
            if to.index is not None:
                to.index.truncate(log_offset)
            self._rebuild = None  # starts over
            for each in self._again:  # it lacks records: from the log's begin instead
                each.fold.reset(0)
            self._again = []
            if isinstance(self.failure, CorruptStoreError):
                self._heal()
            # a fold that begins again has nothing: the log, which may begin later, comes again
            again = max(to.next_offset, self._source.log.min_offset)
            self.reputed.retreat(min(self.reputed.value, log_offset, again))

    def mended(self, start: int, end: int, *, again: bool = False) -> bool:
        """The log's bytes start .. end-1, which begin and end with records, are right now. Where
        dispatch had skipped some, or with `again`, what it missed comes to queues and index. Folds
        are always rebuilt, beside those in use: an earlier process may have made them without a
        record that its queue has. Returns whether there is that to do; `behind` says while there
        is. Raises StoreError if a file cannot be read or written."""
        with self._lock:
            to, missed = self._to, MissedRecords()
            passed = self._source.mended(start, end)
            services = [fold for fold in to.folds if isinstance(fold, ServiceFold)]
            start = max(start, self._source.log.min_offset)
            at, limit = start, min(end, to.queues.next_offset)
            while at < limit and (batch := self._source.batch(at, limit, index=True)).end > at:
                missed.add(batch, to.table, to.queues, services)
                at = batch.end
            if not (passed or again or missed.lacking or missed.folds):
                return False
            for dense in missed.queues if passed or again else missed.lacking:
                to.queues.mark_damaged(dense, f"records at {start}..{end} of the log were mended")
            if to.index is not None and missed.has_keys and to.index.next_offset > start:
                to.index.truncate(start)
            if missed.folds:
                # those under way may not have come yet to what they missed
                first = min(start, self.keep_from)
                self._again = [FoldAgain(fold, first) for fold in services]
            self._rebuild = None  # it may have skipped the same records: it starts over
            self._wake.set()
            return True

    def compare(
        self,
        log: BlockPort,
        start: int,
        end: int,
        known: Container[int],
        entries: EntriesCheck | None = None,
    ) -> set[int]:
        """The queues that have not the units of the records start .. end-1, which `log` has, but
        for those in `known`: they are rebuilt. None while others are. `entries` gets the same
        records for the index. Raises StoreError."""
        with self._lock:
            to, missed = self._to, MissedRecords()
            end = min(end, to.queues.next_offset)
            if to.queues.damaged:
                return set()
            source, index = self._source.over(log), entries is not None
            while start < end and (batch := source.batch(start, end, index=index)).end > start:
                missed.compare(batch, to.table, to.queues)
                if entries is not None:
                    entries(source, batch, self._source.log.min_offset)
                start = batch.end
            if self.behind:
                self._wake.set()
            differ = {each for each in missed.lacking if each not in known}
            for dense in differ:
                to.queues.mark_damaged(dense, f"its units are not those of the log below {end}")
            if differ:
                self._wake.set()
            return differ

    @property
    def index(self) -> IndexService | None:
        return self._to.index

    def undisturbed(self) -> AbstractContextManager[object]:
        """While it is held, nothing is dispatched or cut."""
        return self._lock

    @property
    def keep_from(self) -> int:
        """Retention keeps the log from there on: folds in use do not know that they need it."""
        return min((each.missed for each in self._again), default=ANYWHERE)

    @property
    def behind(self) -> bool:
        """Whether a queue is rebuilt, or a fold or the index rebuilt, from earlier records."""
        index, limit = self._to.index, self._to.queues.next_offset
        return bool(
            self._again
            or self._to.queues.damaged
            or (index is not None and index.next_offset < limit)
        )

    def try_again(self) -> None:
        """Forget the damage that has stopped dispatch: it is skipped from now on."""
        with self._lock:
            if isinstance(self.failure, CorruptStoreError):
                self._heal()

    def begin_at(self, log_offset: int) -> None:
        """A new log begins at `log_offset`; the dispatchers were reset to it."""
        with self._lock:
            self._rebuild = None
            self._again = []
            self.store_timestamp = 0
            self._heal()
            self.reputed.retreat(log_offset)

    # ---- the thread

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(dense indexes of queues that grew)` after each batch, in the dispatching
        thread; it must be quick and must not raise. Returns the function that removes it."""
        return self._listeners.add(listener)

    def start(self) -> None:
        """Dispatch in a thread, whenever `confirmed` moves."""
        self._stopping.clear()
        self._stop_listening = self._confirmed.listen(self._wake.set)
        self._thread = threading.Thread(target=self._run, name="reput", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its current batch, if it runs."""
        self._stopping.set()
        self._wake.set()
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wake(self) -> None:
        """Look for work now, after a change other than of `confirmed`."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            began, done = self._clock.monotonic(), 0
            try:
                self._retry_index()
                if self.failure is None:
                    done = self.run_once()
                self._recovered()
            except CorruptStoreError as error:
                self._fail(error)
                continue
            except StoreError as error:
                self._wait_out(error)
                continue
            except OSError as error:
                # such as no descriptor for a file that must be opened
                self._wait_out(StoreError(f"dispatch: {error}"))
                continue
            except Exception as error:
                self._fail(error)
                continue
            if not done:
                self._wake.wait(IDLE_WAIT_S)
                continue
            waiting = self._confirmed.value - self.reputed.value
            wait_s = gathering_s(done, waiting, self._clock.monotonic() - began)
            if wait_s > 0:
                self._stopping.wait(wait_s)

    def _wait_out(self, fault: StoreError) -> None:
        """Nothing is lost by waiting: puts are held back by the distance (PutPacing)."""
        if self.trouble is None or str(self.trouble) != str(fault):
            logger.error("dispatch is waiting: reputed=%d %s", self.reputed.value, fault)
        self.trouble = fault
        self._wake.wait(RETRY_WAIT_S)

    def _recovered(self) -> None:
        if self.trouble is not None:
            logger.info("dispatch continues: reputed=%d", self.reputed.value)
            self.trouble = None

    def _fail(self, fault: Exception) -> None:
        """Stop permanently: until the log is truncated below this, or starts over."""
        failure = fault if isinstance(fault, StoreError) else StoreError(f"dispatch: {fault!r}")
        cause = fault if not isinstance(fault, StoreError) else None
        logger.error("dispatch stopped: reputed=%d %s", self.reputed.value, failure, exc_info=cause)
        self.failure = failure
        self.reputed.fail(failure)

    def _heal(self) -> None:
        """What has stopped dispatch is gone; caller holds the lock."""
        self.failure = None
        self.reputed.failure = None
        self._wake.set()

    def _retry_index(self) -> None:
        index, now = self._to.index, self._clock.monotonic()
        if index is not None and index.stopped is not None and now >= self._index_retry_at:
            self._index_retry_at = now + INDEX_RETRY_S
            with self._lock:
                index.resume()

    # ---- the parts of a step; the caller holds the lock

    def _main_batch(self, limit: int) -> int:
        to = self._to
        start = max(to.queues.next_offset, self._source.log.min_offset)
        if start >= limit:
            self.reputed.advance(to.next_offset)
            return 0
        index = to.index if to.index is not None and to.index.stopped is None else None
        if index is not None and index.next_offset < start:
            index = None  # it lags
        batch = self._source.batch(start, limit, self._batch_bytes, index=index is not None)
        if batch.end == start:
            return 0
        touched = self._append_units(batch)
        self._apply([fold for fold in to.folds if fold.next_offset >= start], batch)
        if index is not None:
            _insert_keys(index, batch)
        self._publish(batch, touched)
        return batch.end - start

    def _catch_up(self) -> int:
        """A batch each for folds and index where they are behind the queues."""
        to, dispatched = self._to, 0
        minimum, limit = self._source.log.min_offset, to.queues.next_offset
        behind = min(fold.next_offset for fold in to.folds)
        if behind < limit:
            start = max(behind, minimum)
            batch = self._source.batch(start, limit, self._batch_bytes, index=False)
            near = [fold for fold in to.folds if fold.next_offset <= max(start, behind)]
            self._apply(near, batch)
            self.reputed.advance(to.next_offset)
            dispatched += batch.end - start
        index = to.index
        if index is not None and index.stopped is None and index.next_offset < limit:
            start = max(index.next_offset, minimum)
            batch = self._source.batch(start, limit, self._batch_bytes, index=True)
            _insert_keys(index, batch)
            dispatched += batch.end - start
        return dispatched

    def _rebuild_batch(self) -> int:
        """A batch for queues that are rebuilt from the log."""
        queues = self._to.queues
        if self._rebuild is None:
            damaged = frozenset(queues.damaged)
            if not damaged:
                return 0
            queues.rebuild_begin(damaged)
            self._rebuild = _Rebuild(damaged, self._source.log.min_offset)
        rebuild = self._rebuild
        start = max(rebuild.position, self._source.log.min_offset)
        if start >= queues.next_offset:
            queues.rebuild_end(rebuild.queues)
            self._rebuild = None
            logger.info("consume queues rebuilt: %d log_offset=%d", len(rebuild.queues), start)
            self._tell(np.array(sorted(rebuild.queues), dtype=np.int64))
            return 1 if queues.damaged else 0
        batch = self._source.batch(start, queues.next_offset, self._batch_bytes, index=False)
        columns = unit_columns(batch.columns)
        dense = register_queues(self._to.table, columns)
        mine = np.isin(dense, list(rebuild.queues))
        queues.rebuild_append(
            rebuild.queues, dense[mine], columns.queue_offset[mine], columns.units[mine]
        )
        rebuild.position = batch.end
        return max(batch.end - start, 1)

    def _again_batch(self) -> int:
        """A batch for the folds that are rebuilt."""
        if not self._again:
            return 0
        start = max(min(each.next_offset for each in self._again), self._source.log.min_offset)
        limit = max(each.fold.next_offset for each in self._again)
        done = 0
        if start < limit:
            batch = self._source.batch(start, limit, self._batch_bytes, index=False)
            for each in self._again:
                each.apply(batch)
            done = batch.end - start
        self._again = [each for each in self._again if not each.take_place()]
        return done

    def _append_units(self, batch: DispatchBatch) -> NDArray[np.int64]:
        columns, lost = unit_columns(batch.columns), batch.lost
        if lost is not None:
            self._to.queues.keep_number(
                register_queue(self._to.table, lost.topic, lost.queue_id), lost.queue_offset
            )
        return self._to.queues.append(
            register_queues(self._to.table, columns), columns.queue_offset, columns.units, batch.end
        )

    def _apply(self, folds: Iterable[Fold], batch: DispatchBatch) -> None:
        for fold in folds:
            for fault in fold.apply(batch):
                logger.warning("%s: ignored: %s", fold.name, fault)

    def _publish(self, batch: DispatchBatch, touched: NDArray[np.int64]) -> None:
        to, columns = self._to, batch.columns
        self.messages += columns.count
        self.bytes += batch.end - batch.start
        if columns.count:
            self.store_timestamp = int(columns.store_timestamp[-1])
            if to.time_steps is not None:
                to.time_steps.add(columns.physical_offset, columns.store_timestamp)
        self.reputed.advance(to.next_offset)
        self._tell(touched)

    def _tell(self, touched: NDArray[np.int64]) -> None:
        if len(touched):
            self._listeners.tell(touched)


def _insert_keys(index: IndexService, batch: DispatchBatch) -> None:
    columns = batch.columns
    index.insert(
        columns.key_hash,
        columns.physical_offset[columns.entry_record],
        columns.store_timestamp[columns.entry_record],
        batch.end,
    )

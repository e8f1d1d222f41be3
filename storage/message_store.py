"""The store of one node, composed: open and recover, append, dispatch, read, truncate, close.

    append ──▶ log ──flush──▶ confirmed ──reput──▶ queues, index, producers ──▶ reader
               wrote ≥ committed ≥ flushed      confirmed ≥ reputed

On a single node `confirmed` follows the log by itself (flushed in sync flush, committed in async);
otherwise replication advances it. Consumers see what is dispatched, so never more.

    role       writes                      next queue offsets
    single     append                      from the queues' ends, at open
    slave      append_raw, truncate        not needed
    relay      append_raw, truncate        not needed
    master     append, after become_master from the end of the log, confirmed or not

One lock serialises everything that changes the log; positions are read without it.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.epochs import EpochEntry
from tandemlog.format.record.batch import RecordBatch

from .clock import Clock, SystemClock
from .config import ConfirmSource, FlushMode, RetentionConfig, StoreConfig
from .cut_positions import Row, cut_positions, queue_end
from .disk.file_system import Buffer, FileSystem
from .disk.real_file_system import RealFileSystem
from .disk_errors import refusing
from .errors import (
    DiskFullError,
    StoreClosedError,
    StoreError,
    StoreReadOnlyError,
)
from .housekeeping import RETENTION, StoreKeeper, housekeeping, save_offsets
from .log.flush import FlushService
from .log.log_scanner import Damage
from .log.raw_intake import RawIntake, damage_end
from .metadata.topics import TopicConfig
from .progress import Progress
from .puts.put_path import PutResult
from .puts.store_puts import StorePuts
from .recovery.last_stop import FailureNote
from .recovery.opening import Opened, open_store
from .recovery.prologue import needs_prologue, prologue, take_prologue
from .recovery.promotion import take_over_log_end
from .recovery.set_aside import drop_set_aside, set_aside
from .recovery.truncation import save_copy, truncate_store
from .retention.cleaner import Cleaner
from .scrub.log_mending import Pace, Patch, at_once
from .scrub.store_mending import mend_store
from .topic_changes import create_topic

logger = logging.getLogger(__name__)

SLAVE = "this node is a slave; send puts to the master"
RELAY = "this node follows a RocketMQ broker; send puts to that broker"


class MessageStore:
    """See the module. `open` recovers, `start` starts the threads, `close` ends both."""

    def __init__(self, opened: Opened) -> None:
        parts = opened.parts
        self.recovery = opened.report
        self._parts = parts
        # what it is made of
        self.config = parts.config
        self.clock = parts.clock
        self.files = parts.files
        self.directory = parts.config.directory
        self.log = parts.log
        self.queues = parts.queues
        self.queue_table = parts.queue_table
        self.index = parts.index
        self.producers = parts.producers
        self.delays = parts.delays
        self.leases = parts.leases
        self.transactions = parts.transactions
        self.topics = parts.topics
        self.groups = parts.groups
        self.consumer_offsets = parts.consumer_offsets
        self.group_members = parts.group_members
        self.epochs = parts.epochs
        self.log_identity = parts.log_identity
        self.confirmed = parts.confirmed
        self.reputed = parts.reputed
        self.reput = parts.reput
        self.source = parts.source
        self.reader = parts.reader
        self.stats = parts.stats
        self._lock_file = opened.lock
        self._abort = opened.abort
        self._last_stop = opened.last_stop
        self._persistence = opened.persistence
        self._failure_note = FailureNote(parts.log, opened.last_stop)
        self._cleaner = Cleaner(parts)
        self._flush = FlushService(parts.log, parts.config, parts.clock)
        self._write_lock = threading.RLock()
        self._puts = StorePuts(parts, self._write_lock, self._prepare_append)
        self._started = False
        self._read_only = ""
        self._closed = False
        tasks = housekeeping(
            parts,
            persist=self.persist,
            clean=lambda: self._cleaner.run(self._write_lock),
            note_failure=self._failure_note.save,
            restore_reserve=opened.reserve.restore,
        )
        self._keeper = StoreKeeper(tasks, parts.clock)
        if parts.config.confirm is ConfirmSource.LOCAL:
            self._follow_log()
        else:
            self._read_only = SLAVE
            self._last_stop.count_only_flushed()

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        files: FileSystem | None = None,
        clock: Clock | None = None,
        progress: Progress | None = None,
        confirmed_at_most: int | None = None,
    ) -> "MessageStore":
        """Take the store's lock, recover it, and prepare it for `start`.

        `progress(bytes done, bytes in all)` is called during long recoveries; nothing above
        `confirmed_at_most` is noted as confirmed on the disk. Raises StoreLockedError,
        StoreLayoutError, CorruptStoreError, or the error of a failing disk; the store is then
        closed.
        """
        files = files if files is not None else RealFileSystem()
        clock = clock if clock is not None else SystemClock()
        return cls(open_store(config, files, clock, progress, confirmed_at_most))

    @property
    def failure(self) -> StoreError | None:
        """The failure that has stopped this store permanently (a failed fsync, a damaged log), or
        None."""
        return self.log.failure or self.reput.failure

    @property
    def faults(self) -> list[str]:
        """What is wrong and stops nothing: a clock that has jumped, a disk that gets
        full, files that cannot be read."""
        jump = self.clock.jump
        faults = [] if jump is None else [jump.text()]
        if disk := self._cleaner.disk_fault:
            faults.append(disk)
        return faults + [str(error) for error in self.log.unreadable]

    @property
    def trouble(self) -> StoreError | None:
        """Why dispatch waits now; None if it does not."""
        return self.reput.trouble

    @property
    def damages(self) -> list[Damage]:
        """Damage in the log that has been found so far: at open, at a promotion or while
        dispatching."""
        self.recovery.add_damages(self._parts.source.passed.values())
        return self.recovery.damages

    @property
    def doubt(self) -> str:
        """Why bytes that counted as stored here may be missing since an earlier stop, until
        `forget_doubt`; empty if none are (last_stop.py)."""
        return self._last_stop.doubt

    def forget_doubt(self) -> None:
        """Forget the doubt, durably, once it has been acted on."""
        self._last_stop.forget_doubt()

    def count_unflushed(self) -> None:
        """From now on others are promised bytes that are not fsynced here yet: an unclean stop of
        the machine leaves a doubt. Durable on return."""
        self._last_stop.count_unflushed()

    def count_flushed(self) -> bool:
        """Note that all bytes that count here are fsynced, until the next put: a stop of the
        machine leaves no doubt. Durable on return; False, and nothing is changed, if the log is not
        flushed to its end. Raises DiskFullError or StoreReadOnlyError."""
        with self._write_lock:
            if self._closed or self.log.flushed.value < self.log.wrote.value:
                return False
            with refusing("the note about what is fsynced cannot be written"):
                self._last_stop.flushed()
            return True

    @property
    def read_only_reason(self) -> str:
        """Why the store accepts no puts now; empty if it does."""
        if self._closed:
            return "it is closed"
        failure = self.failure or self._cleaner.disk_full
        return self._read_only or ("" if failure is None else str(failure))

    @property
    def writable(self) -> bool:
        return not self.read_only_reason

    # ---- life

    def start(self) -> None:
        """Start the threads for flushing, dispatch and housekeeping."""
        self.log.start()
        self._flush.start()
        self.reput.start()
        self._keeper.start()
        self._started = self._failure_note.apart = True

    def close(self) -> None:
        """Accept no more writes, make everything durable, and close.

        Deletes the abort file only if the next open has nothing left to do; a second call does
        nothing.
        """
        with self._write_lock:
            if self._closed:
                return
            self._closed = True
        try:
            clean = self._finish()
        finally:
            try:
                self._parts.close()
            finally:
                self._lock_file.release()
        logger.info(
            "store closed: directory=%s clean=%s log=%d..%d",
            self.directory, clean, self.log.min_offset, self.log.wrote.value,
        )  # fmt: skip

    def _finish(self) -> bool:
        """Everything before the files are closed; returns whether the stop is clean."""
        self._keeper.close()
        self._failure_note.save()
        try:
            self._flush.close()
            if self.failure is None:
                self._last_stop.flushed()
            self.reput.stop()
            if self.failure is None:
                self.reput.run_to()
            save_offsets(self._parts)
            self._persistence.save(closing=True)
        except (StoreError, OSError) as error:
            logger.error("the store could not be closed cleanly: %s", error)
            self._failure_note.save()
            self.reput.stop()
            return False
        index = self.index
        done = self.reputed.value >= self.confirmed.value or not self.reput.run_once()
        if self.failure is not None or not done or (index is not None and index.stopped):
            return False
        try:
            self._abort.remove()
        except OSError as error:
            logger.error("the store could not be closed cleanly: %s", error)
            return False
        return True

    def persist(self) -> None:
        """Make queues, index and producer table durable and record their positions."""
        self._persistence.save()

    def flush(self) -> int:
        """fdatasync what was written; returns the offset up to which the log is durable now.

        Raises FlushFailedError if that fails; the failure is permanent.
        """
        flushed, source = self._flush.flush(), self._parts.source
        if 0 < source.announced <= flushed:
            # before any listener runs: the damage is not below what was noted as durable, so the
            # next open would take it for the end of the log
            self.persist()
            if source.announced < flushed:
                source.announced = 0
        return flushed

    def set_retention(self, config: RetentionConfig) -> None:
        """Apply from the next round on. Any thread."""
        self._cleaner.config = config
        self._keeper.set_interval(RETENTION, config.check_interval_ms / 1000)

    def hold_log(self, keep_from: Callable[[], int] | None) -> None:
        """Let retention keep the log from the offset on that this returns, in any thread; None:
        as it is configured."""
        self._cleaner.held_from = keep_from

    # ---- puts

    def put(self, batch: RecordBatch, *, now_ms: int | None = None, holder: str = "") -> PutResult:
        """Store a client's batch, all of it or nothing. `holder` is its sender: an identity, or a
        host.

        Raises BatchRefusedError (what is wrong with it), StoreReadOnlyError or DiskFullError (this
        store takes no puts now), StoreBusyError (the disk cannot keep up). A request that was
        stored before is acknowledged and not stored again.
        """
        return self._puts.put(batch, now_ms, holder, paced=self._started)

    def put_own(
        self, frame: Callable[[], RecordBatch | None], *, frees: bool = False
    ) -> PutResult | None:
        """Append records of one of this store's services: of any topic, with any header. `frame`
        returns them, or None for none; it is called with the write lock taken, so nothing else
        changes the log between what it looks at and the append. Raises as `put`, and what `frame`
        does; not DiskFullError above disk_warning_percent if the append `frees` old files."""
        return self._puts.put_own(frame, frees=frees)

    @property
    def retention_waits_for(self) -> int | None:
        """See Cleaner.waits_for."""
        return self._cleaner.waits_for

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed")

    def _require_writable(self, *, frees: bool = False) -> None:
        self._require_open()
        if self.log.failure is not None:
            raise self.log.failure.with_traceback(None)
        if self.reput.failure is not None:
            raise StoreReadOnlyError(f"dispatch has stopped: {self.reput.failure}")
        if self._cleaner.disk_full is not None and not frees:
            raise DiskFullError(self._cleaner.disk_full.reason)
        if self._read_only:
            raise StoreReadOnlyError(self._read_only)

    def _prepare_append(self, frees: bool) -> None:
        self._require_writable(frees=frees)
        if self._last_stop.rests:
            with refusing("the note about what is not fsynced yet cannot be written"):
                self._last_stop.count_unflushed()

    def create_topic(self, topic: TopicConfig, *, update: bool = False) -> TopicConfig:
        """Add a topic, or with `update` change one; durable on return. Raises MetadataError for an
        invalid topic, for one that exists already, and for queues with messages that an update
        would remove."""
        return create_topic(self._parts, topic, self._write_lock, update=update)

    def on_dispatch(self, listener: Callable[[NDArray[np.int64]], None]) -> Callable[[], None]:
        """Call `listener(dense indexes of queues that grew)` in the dispatching thread; it must be
        quick and must not raise. Returns the function that removes it."""
        return self.reput.listen(listener)

    # ---- positions of readers

    def cut_positions(self, rows: Sequence[Row], cut: int) -> dict[int, int]:
        """See cut_positions.py, as for `queue_end`."""
        return cut_positions(self._parts, rows, cut)

    def queue_end(self, topic: str, queue_id: int) -> int | None:
        return queue_end(self._parts, topic, queue_id)

    # ---- replication

    def append_raw(self, offset: int, data: Buffer, *, whole: bool = False) -> None:
        """Store a master's bytes as they are; `whole` if a record ends with them. Raises what
        CommitLog.append_raw does."""
        with self._write_lock:
            self._require_open()
            self.log.append_raw(offset, data, whole=whole)
        self.stats.count_raw(len(data))

    def raw_intake(self) -> RawIntake:
        """Checks and stores the bytes of one stream of a master."""
        return RawIntake(
            self.log.file_size,
            partial(self.append_raw, whole=True),
            self.append_raw,
            self.log.starts.add,
        )

    def pass_over(self, start: int, end: int) -> None:
        """Let dispatch skip start .. end-1, where the master's own log has no record either."""
        self._parts.source.pass_over(start, end)

    def copy_aside(self, start: int, end: int) -> Path:
        """Copy log bytes `start`..`end`, which are about to be cut, to a file of their own; durable
        on return. Raises DiskFullError or StoreReadOnlyError."""
        with refusing(f"log bytes {start}..{end} cannot be kept in a file"):
            return save_copy(self._parts, start, end)

    def mend(self, patches: Sequence[Patch], *, pace: Pace = at_once, again: bool = False) -> None:
        """See store_mending.mend_store."""
        mend_store(self._parts, self._write_lock, patches, pace, again=again)
        self.recovery.mended(patches)

    def damage_end(self, offset: int) -> int:
        """See raw_intake.damage_end."""
        return damage_end(self.log, offset)

    def advance_confirmed(self, offset: int) -> None:
        """Everything below `offset` is on every in-sync replica; the position never exceeds this
        log."""
        self.confirmed.advance(min(offset, self.log.committed.value))

    def truncate(self, offset: int) -> None:
        """Truncate the log at `offset`, and everything derived from later records, durably."""
        with self._write_lock:
            self._require_open()
            if offset < (confirmed := self.confirmed.value):
                logger.error("truncating confirmed bytes: offset=%d end=%d", offset, confirmed)
            truncate_store(self._parts, self._persistence, offset)
            self._last_stop.start_over()

    def reset(self, offset: int) -> None:
        """Set the log and everything derived from it aside, into `resync-<ms>`; an empty log that
        starts at `offset` (the start of a file) replaces it."""
        with self._write_lock:
            self._require_open()
            set_aside(self._parts, self._persistence, offset, running=self._started)
            self._last_stop.start_over()
            self.log_identity.begin_log(self.clock.now_ms())

    def drop_set_aside(self) -> int:
        """Delete all but the newest logs that were set aside (set_aside_kept); returns how many."""
        return drop_set_aside(self._parts)

    def adopt_commit_log_file_size(self, size: int) -> None:
        """On an empty log: new files get this size. Raises StoreError if it holds bytes."""
        with self._write_lock:
            log = self.log
            if log.files and log.wrote.value > log.min_offset:
                raise StoreError(f"the log holds {log.min_offset}..{log.wrote.value}: reset it")
            log.reset(0, file_size=size)
            self.reset(0)

    @property
    def needs_prologue(self) -> bool:
        """See prologue.py, as for the next two methods."""
        report = self.recovery
        return needs_prologue(self._parts, foreign=report.foreign or report.producers_anew)

    def prologue(self, offset: int) -> bytes:
        return prologue(self._parts, offset)

    def take_prologue(self, data: bytes) -> None:
        with self._write_lock:
            take_prologue(self._parts, data)

    def become_master(self, epoch: int) -> None:
        """Accept puts from now on: cuts a record that the last master has sent only in part, takes
        queue offsets and producers from the log's end, and makes the epoch durable.

        Raises FormatError for an epoch that is not newer than all in the table, StoreError if
        the log lacks what was durable in it.
        """
        with self._write_lock:
            # of all that came: a slave's last flush may end inside a record, where no scan begins
            self._last_stop.check_lost(self.flush())
            newest = take_over_log_end(self._parts, self._persistence)
            self._puts.begin_after(newest, self.log.wrote.value)
            self._begin_term(epoch)
            self._read_only = ""
            self.stats.traffic.counts_puts = True
        logger.info("master: epoch=%d start_offset=%d", epoch, self.log.wrote.value)

    def become_relay(self, epoch: int) -> None:
        """Accept no puts, but lead this store's slaves in `epoch`, durably: the log, which ends
        with a record, grows by `append_raw`. Raises FormatError as `become_master`."""
        with self._write_lock:
            self._read_only = RELAY
            self._begin_term(epoch)
            self.stats.traffic.counts_puts = True
        logger.info("relay: epoch=%d start_offset=%d", epoch, self.log.wrote.value)

    def _begin_term(self, epoch: int) -> None:
        """At the end of the log. The id first: without its term it has no effect."""
        end = self.log.wrote.value
        self.log_identity.begin_term(epoch, end, self.clock.now_ms())
        self.epochs.append(EpochEntry(epoch, end))

    def become_slave(self) -> None:
        """Accept no puts from now on."""
        with self._write_lock:
            self._read_only = SLAVE
            self.stats.traffic.counts_puts = False
        logger.info("slave: end=%d confirmed=%d", self.log.wrote.value, self.confirmed.value)

    def _follow_log(self) -> None:
        """A single node confirms for itself."""
        self.stats.traffic.counts_puts = True
        log = self.log
        followed = log.flushed if self.config.flush is FlushMode.SYNC else log.committed
        followed.listen(lambda: self.confirmed.advance(followed.value))
        self.confirmed.advance(followed.value)

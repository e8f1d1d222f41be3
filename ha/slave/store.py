"""Executes a slave's actions on its store.

    actions ──▶ run (in order, one thread) ──▶ flush: fdatasync once for all ──▶ Outcome(durable)

Everything that the protocol promises on disk happens here: an epoch is remembered before its
bytes, bytes are durable before they are reported, the own confirm offset is never above what is
durable here. `flush` may run in another thread, so that the next bytes are written while the disk
takes the last ones; never while a handshake's actions run.

Log first: while the master is more than `log_first_bytes` ahead, the own confirm offset does not
move, for at most `log_first_ms`. Dispatching would take the processor from the bytes that make
this slave a safe copy.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tandemlog.format.fast_crc import crc32
from tandemlog.format.files.epochs import EpochTable
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.errors import DamagedChunkError

from ..config import HaConfig
from ..errors import ChunkDamagedError, DivergedError, LogMovedError, NotRunningError
from ..frame_limits import MAX_CHECKSUMS
from ..protocol.frames import Checksum, Hello
from ..protocol.handshake import SlaveView, checksum_blocks
from ..protocol.log_crc import log_crc
from ..state import HaState, InSyncRecord, remembered
from ..store_port import StorePort, tables_of
from .session import (
    AcceptEpoch,
    AdoptEpochs,
    Append,
    BeginAt,
    CheckProof,
    Confirm,
    KnowNodes,
    Prepared,
    ReplaceTable,
    SetAside,
    StoreAction,
    TakeDamage,
    TakePrologue,
    Truncate,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Log offsets: what lies below is fsynced, or in the queues and the index."""

    durable: int
    reput: int


class SlaveStore:
    """See the module. `save` makes a state durable; `fresh` names a new incarnation;
    `unclean_epoch` is that of the cluster's record (handshake.py), 0 with configured roles."""

    def __init__(
        self,
        store: StorePort,
        state: HaState,
        save: Callable[[HaState], None],
        fresh: Callable[[], str],
        config: HaConfig,
        clock: Clock,
        *,
        unclean_epoch: int = 0,
    ) -> None:
        self.store = store
        self._unclean_epoch = unclean_epoch
        self.state = state
        self._save = save
        self._fresh = fresh
        self._config = config
        self._clock = clock
        self._master_confirm = 0
        self._master_end = 0
        self._held_since = 0.0
        self._aligned = False
        self._stopped = False
        self._intake = store.raw_intake()
        self._damaged_until = 0
        self._doubted: int | None = None
        # two threads confirm: otherwise the slower one could set an older offset
        self._confirming = threading.Lock()

    def stop(self) -> None:
        """From any thread: what reads the whole log ends with its next block."""
        self._stopped = True

    def greeting(self, hello: Hello, *, distrust: bool) -> tuple[Hello, SlaveView]:
        """`hello` with what this store holds now.

        Checksums of the whole log go along where the epoch table proves nothing: it is empty, or
        `distrust` says that it lied; that reads all of it. Raises NotRunningError after `stop`.
        """
        log = self.store.log
        if self._aligned:
            self._confirm(log.flushed.value)
        self._aligned = False
        self._master_confirm = self._master_end = 0
        self._intake, self._damaged_until = self.store.raw_intake(), 0
        low, high = log.min_offset, log.wrote.value
        # no byte came of a term that begins at the end: what comes there may be of the one before
        epochs = self.store.epochs
        begun = epochs.table.truncate_suffix(max(high, low + 1))
        if begun != epochs.table and not distrust:  # a wrong table is replaced by the master's
            epochs.replace(begun)
        entries = tuple(epochs.table.entries)
        # A store that never followed or led knows nothing of what this cluster confirmed.
        took_part = self.state.accepted_epoch > 0
        confirm = min(self.store.confirmed.value, high) if took_part else 0
        checksums: tuple[Checksum, ...] = ()
        if low < high and (distrust or not entries):
            block = max(self._config.checksum_block_bytes, (high - low) // (MAX_CHECKSUMS // 4))
            checksums = checksum_blocks(low, high, block, self.crc)
        view = SlaveView(
            min_offset=low,
            max_offset=high,
            confirm=confirm,
            file_size=log.file_size,
            accepted_epoch=self.state.accepted_epoch,
            epochs=() if checksums else entries,
            unclean_epoch=self._unclean_epoch,
        )
        followed = self.state.followed
        greeting = replace(
            hello,
            incarnation=self.state.incarnation,
            epochs=entries,
            min_offset=low,
            max_offset=high,
            confirm_offset=confirm,
            file_size=0 if low == high else log.file_size,
            checksums=checksums,
            accepted_epoch=self.state.accepted_epoch,
            master_id=followed.node_id if followed is not None else "",
            master_incarnation=followed.incarnation if followed is not None else "",
            doubted_offset=self._doubted if self._doubted == high else None,
            needs_prologue=self.store.needs_prologue,
        )
        return greeting, view

    def run(self, actions: Sequence[StoreAction]) -> bool:
        """Execute the actions; whether the handshake's were among them. Raises what the store
        raises, and DivergedError."""
        prepared = False
        for action in actions:
            if isinstance(action, Append):
                self._append(action)
            elif isinstance(action, Confirm):
                self._master_confirm = max(self._master_confirm, action.offset)
                self._master_end = action.master_end
            elif isinstance(action, ReplaceTable):
                self._replace_table(action)
            elif isinstance(action, Prepared):
                prepared = self._aligned = True
            else:
                self._prepare(action)
        return prepared

    def run_and_flush(self, actions: Sequence[StoreAction]) -> tuple[bool, Outcome]:
        """`run` and `flush` in one: the answers of both."""
        prepared = self.run(actions)
        return prepared, self.flush()

    def flush(self) -> Outcome:
        """Make durable what has been run, and confirm what may be."""
        durable = self.store.flush()
        if self._aligned and not self._log_first(durable):
            self._confirm(durable)
        return Outcome(durable, self.store.reputed.value)

    def crc(self, start: int, end: int) -> int:
        """CRC-32 of the log's bytes start..end. Raises NotRunningError after `stop`."""
        if self._stopped:
            raise NotRunningError("this slave is stopping")
        return log_crc(self.store, start, end)

    def _log_first(self, durable: int) -> bool:
        now = self._clock.monotonic()
        if self._master_end - durable <= self._config.log_first_bytes:
            self._held_since = now
            return False
        if (now - self._held_since) * 1000 >= self._config.log_first_ms:
            self._held_since = now
            return False
        return True

    def _confirm(self, durable: int) -> None:
        with self._confirming:
            self.store.advance_confirmed(own_confirm(self._master_confirm, durable))

    def _append(self, action: Append) -> None:
        if action.entry is not None:
            # First the epoch, then its bytes: bytes of an unknown epoch could not be compared.
            self.store.epochs.append(action.entry)
        if action.crc is not None and crc32(action.data) != action.crc:
            raise ChunkDamagedError(
                f"the {len(action.data)} bytes at {action.offset} have CRC "
                f"{crc32(action.data):#010x}, the master sent {action.crc:#010x}: they were "
                "changed in transit and are requested again"
            )
        try:
            self._intake.take(action.offset, action.data, self._damaged_until)
        except DamagedChunkError as error:
            self._doubted = error.offset
            raise ChunkDamagedError(f"{error}; requesting it from the master again") from error

    def _prepare(self, action: StoreAction) -> None:
        if isinstance(action, CheckProof):
            begin = self.store.log.min_offset
            if action.start < begin:
                raise LogMovedError(
                    f"the log begins at {begin} now: retention has deleted {action.start}..{begin} "
                    "since the handshake, which begins again"
                )
            mine = self.crc(action.start, action.end)
            if mine != action.crc:
                raise DivergedError(action.start, action.end, mine, action.crc)
        elif isinstance(action, AcceptEpoch):
            record = self._knowing(action.known_nodes)
            self._remember(
                replace(
                    self.state, accepted_epoch=action.epoch, followed=action.master, record=record
                )
            )
        elif isinstance(action, KnowNodes):
            self._remember(replace(self.state, record=self._knowing(action.nodes)))
        elif isinstance(action, BeginAt):
            self._begin(action)
        elif isinstance(action, TakePrologue):
            self.store.take_prologue(action.data)
        elif isinstance(action, Truncate):
            logger.warning(
                "truncating the log: %d -> %d", self.store.log.wrote.value, action.offset
            )
            self.store.truncate(action.offset)
        elif isinstance(action, AdoptEpochs):
            below = tuple(each for each in action.entries if each.start_offset < action.offset)
            self.store.epochs.replace(EpochTable(below))
        elif isinstance(action, TakeDamage):
            self._damaged_until = action.end
            self.store.pass_over(action.start, action.end)
        elif isinstance(action, SetAside):
            fresh = replace(self.state, incarnation=self._fresh())
            set_log_aside(self.store, action.offset, action.reason, lambda: self._remember(fresh))

    def _knowing(self, nodes: frozenset[str]) -> InSyncRecord:
        record = self.state.record
        return replace(record, known=remembered(nodes, record.known))

    def _begin(self, action: BeginAt) -> None:
        """Sizes first: the intake judges by them."""
        log = self.store.log
        if log.file_size != action.file_size:
            self.store.adopt_commit_log_file_size(action.file_size)
        if log.wrote.value != action.offset:
            self.store.reset(action.offset)
        self._intake = self.store.raw_intake()
        self.store.epochs.replace(EpochTable(()))

    def _replace_table(self, action: ReplaceTable) -> None:
        table = tables_of(self.store).get(action.update.kind)
        if table is None:
            logger.warning("the master sent a table of the unknown kind %r", action.update.kind)
            return
        table.replace_from_json(action.update.json)

    def _remember(self, state: HaState) -> None:
        if state != self.state:
            self._save(state)
            self.state = state


def set_log_aside(
    store: StorePort, offset: int, reason: str, renew_incarnation: Callable[[], None]
) -> None:
    """An empty log that starts at `offset` replaces this one. The incarnation first: what the old
    disk acknowledged is gone with it. Raises what the store does, before anything has changed if
    it has failed."""
    if store.log.flushed.failure is not None:
        raise store.log.flushed.failure.with_traceback(None)
    logger.warning("setting the log aside, starting at %d: %s", offset, reason)
    renew_incarnation()
    store.reset(offset)
    store.epochs.replace(EpochTable(()))


def own_confirm(masters: int, durable: int) -> int:
    """A slave's confirm offset: the master's, as far as it is durable here."""
    return min(masters, durable)

"""The start of a master's term: every start is a new epoch, even if the same node was master
before.

    remember the epoch  ▶  cover old bytes  ▶  epoch entry at the log's end  ▶  writable
    (nothing lower is    (a RocketMQ store:     (durable before the first
     served again)        epoch 0)               byte of the term)

Which epoch, and which set? If the cluster elects its master, both come from the transaction that
was won: the caller passes them as `won`, and no other node has that epoch.

With configured roles it is the next epoch that this node knows, and the last recorded set: each
member may hold acknowledged bytes, so it must follow before anything is confirmed, or leave under
the lag rule once the others suffice. Nor may a member lead before it has followed: this master may
have slept through terms in which that one left the set. So the record is not settled at first, and
nothing is acknowledged until a settled one is durable. At each moment the newest settled record of
all nodes names disks that hold all that was acknowledged.

If this master may have lost bytes that it counted as its own, members cannot even leave before they
have followed: one of them may hold the only copy. The store's doubt about that (session_file.py) is
dropped only when the record that acts on it is durable.

A master with async flush counts bytes that are not fsynced, which leaves a doubt if its machine
stops. It does so only while it may: a term that has ended is flushed to its end, and a master that
takes nothing for IDLE_S is flushed too, so the note is withdrawn. Otherwise a power cut of all
machines would leave a doubt about every disk that has ever led, and no node could be elected though
nothing is missing.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.errors import StoreError

from ..config import HaConfig, Role
from ..errors import StateFileError
from ..protocol.handshake import MasterView
from ..state import HaState, InSyncRecord, Member, check_reachable, remembered
from ..store_port import LogPort, StorePort

logger = logging.getLogger(__name__)

IDLE_S = 5.0
"""Without a put, before a master notes that all is fsynced; the next put waits for a small file."""


@dataclass(frozen=True, slots=True)
class WonTerm:
    """What an election gave this node: see ha/election. Durable at the coordinator."""

    epoch: int
    version: int
    in_sync: frozenset[Member]
    known: frozenset[str] = frozenset()
    unclean_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """What a master's group is made of."""

    state: HaState
    view: MasterView
    record: InSyncRecord
    me: Member


def next_epoch(table: EpochTable, state: HaState) -> int:
    """The first epoch above all that this node has led, followed or holds bytes of; at least 1.
    Raises StateFileError if they have reached MAX_EPOCH."""
    newest = 0 if table.last is None else table.last.epoch
    epoch = max(newest, state.accepted_epoch) + 1
    check_reachable(epoch, "the next epoch")
    return epoch


def begin_term(
    store: StorePort,
    state: HaState,
    save: Callable[[HaState], None],
    config: HaConfig,
    won: WonTerm | None = None,
) -> Term:
    """Make `store` the master's, in a new epoch. Blocks on the disk; raises what the store does,
    and StateFileError for an epoch that was won and is not new here."""
    me = Member(state.node_id, state.incarnation)
    epoch = next_epoch(store.epochs.table, state)
    if won is None:
        record, unheard = own_record(store, state, config, epoch)
    else:
        record, unheard = won_record(won, me, epoch), frozenset()
        epoch = won.epoch
    # it follows itself: a node that serves in the same epoch later has another history
    state = replace(state, accepted_epoch=epoch, followed=me, record=record)
    save(state)
    if config.mode.waits:
        # in async replication no node has acted on it, and a later term may have to
        store.forget_doubt()
        if store.config.flush is FlushMode.ASYNC:
            store.count_unflushed()
    cover_old_bytes(store)
    if config.role is Role.RELAY:
        store.become_relay(epoch)
    else:
        store.become_master(epoch)
    log = store.log
    view = MasterView(
        cluster_id=state.cluster_id,
        node_id=state.node_id,
        incarnation=state.incarnation,
        endpoint=config.endpoint,
        epoch=epoch,
        epochs=store.epochs.table,
        min_offset=log.min_offset,
        end_offset=log.committed.value,
        confirm=store.confirmed.value,
        file_size=log.file_size,
        proof_bytes=config.proof_bytes,
        unheard=unheard,
        known_nodes=record.known,
        elected=won is not None,
        unclean_epoch=0 if won is None else won.unclean_epoch,
    )
    return Term(state, view, record, me)


def end_term(store: StorePort) -> None:
    """`store` takes no more puts, and what it took is fsynced: from here on only fsynced bytes
    count. Blocks on the disk. If the disk fails, the note stays, and the store says why."""
    store.become_slave()
    try:
        store.flush()
        store.count_flushed()
    except StoreError as error:
        logger.warning("the log could not be flushed to its end: %s", error)


class Idleness:
    """Since when a master has taken nothing. Pure."""

    def __init__(self) -> None:
        self._end = -1
        self._since = 0.0
        self._noted = False

    def is_due(self, log: LogPort, now: float) -> bool:
        """Whether it is time to note that all is fsynced: once for each rest."""
        end = log.wrote.value
        if end != self._end:
            self._end, self._since, self._noted = end, now, False
        rested = now - self._since >= IDLE_S and log.flushed.value >= end
        return rested and not self._noted

    def noted(self) -> None:
        self._noted = True


def own_record(
    store: StorePort, state: HaState, config: HaConfig, epoch: int
) -> tuple[InSyncRecord, frozenset[Member]]:
    """The in-sync set that this node recorded last, and whom it has to hear first."""
    me = Member(state.node_id, state.incarnation)
    others = frozenset(each for each in state.record.members if each.node_id != me.node_id)
    unheard = others if may_have_lost(store, config) else state.record.unheard & others
    if unheard:
        logger.warning(
            "this store may lack acknowledged bytes: wait_for=%s reason=%s",
            sorted(each.node_id for each in unheard), store.doubt or "as in the last term",
        )  # fmt: skip
    node_ids = remembered((each.node_id for each in (*others, me)), state.record.known)
    record = InSyncRecord(
        epoch, state.record.version + 1, others | {me}, unheard, node_ids, settled=not others
    )
    return record, unheard


def won_record(won: WonTerm, me: Member, lowest_epoch: int) -> InSyncRecord:
    """The set of the transaction that was won. Raises StateFileError if its epoch is not above all
    that this node knows: the coordinator's data is older than this store."""
    if won.epoch < lowest_epoch or me not in won.in_sync:
        raise StateFileError(
            f"epoch {won.epoch} was won for the members {sorted(won.in_sync)}, but this node is "
            f"{me} and has seen epoch {lowest_epoch - 1}: the coordinator's data is older than "
            "this store"
        )
    return InSyncRecord(won.epoch, won.version, won.in_sync, frozenset(), won.known)


def cover_old_bytes(store: StorePort) -> None:
    """Bytes older than the epoch table, of a store that RocketMQ wrote, become epoch 0."""
    entries = store.epochs.table.entries
    low, high = store.log.min_offset, store.log.wrote.value
    begin = entries[0].start_offset if entries else high
    if low < begin and (not entries or entries[0].epoch > 0):
        store.epochs.replace(EpochTable((EpochEntry(0, low), *entries)))


def may_have_lost(store: StorePort, config: HaConfig) -> bool:
    """Whether bytes that a quorum with this master was promised may be gone from here. In async
    replication the term does not wait."""
    return config.mode.waits and bool(store.doubt)


def own_position(store: StorePort) -> int:
    """What counts as held by the master itself: fsynced in sync flush, written in async flush."""
    log = store.log
    return log.flushed.value if store.config.flush is FlushMode.SYNC else log.committed.value

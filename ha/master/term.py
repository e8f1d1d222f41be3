"""The start of a master's term: every start is a new epoch, even if the same node was master
before.

    remember the epoch  ▶  cover old bytes  ▶  epoch entry at the log's end  ▶  writable
    (nothing lower is    (a RocketMQ store:     (durable before the first
     served again)        epoch 0)               byte of the term)

The in-sync set begins as the last recorded one: each member may hold acknowledged bytes, so it must
follow before anything is confirmed, or leave under the lag rule once the others suffice. If this
master may have lost bytes that it counted as held, they cannot even leave before they have
followed: one of them may hold the only copy. The store's doubt about that (session_file.py) is
forgotten only when the record that acts on it is durable.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from storage.config import FlushMode
from tandemlog.format.files.epochs import EpochEntry, EpochTable

from ..config import HaConfig, Replication
from ..protocol.handshake import MasterView
from ..state import HaState, InSyncRecord, Member, check_reachable, remembered
from ..store_port import StorePort

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Term:
    """What a master's group is made of."""

    state: HaState
    view: MasterView
    record: InSyncRecord
    me: Member


def next_epoch(table: EpochTable, state: HaState) -> int:
    """Above every epoch that this node has led, followed or holds bytes of; at least 1. Raises
    StateFileError if there is none above them."""
    newest = 0 if table.last is None else table.last.epoch
    epoch = max(newest, state.accepted_epoch) + 1
    check_reachable(epoch, "the next epoch")
    return epoch


def begin_term(
    store: StorePort,
    state: HaState,
    save: Callable[[HaState], None],
    config: HaConfig,
) -> Term:
    """Make `store` the master's, in a new epoch. Blocks on the disk; raises what the store does."""
    epoch = next_epoch(store.epochs.table, state)
    me = Member(state.node_id, state.incarnation)
    others = frozenset(each for each in state.record.members if each.node_id != me.node_id)
    unheard = others if may_have_lost(store, config) else state.record.unheard & others
    if unheard:
        logger.warning(
            "this store may lack acknowledged bytes: wait_for=%s reason=%s",
            sorted(each.node_id for each in unheard), store.doubt or "as in the last term",
        )  # fmt: skip
    known = remembered((each.node_id for each in (*others, me)), state.record.known)
    record = InSyncRecord(epoch, state.record.version + 1, others | {me}, unheard, known)
    # it follows itself: a node that serves in the same epoch later has another history
    state = replace(state, accepted_epoch=epoch, followed=me, record=record)
    save(state)
    if config.replication is Replication.SYNC:
        # in async replication no node has acted on it, and a later term may have to
        store.settle_doubt()
        if store.config.flush is FlushMode.ASYNC:
            store.count_unflushed()
    cover_old_bytes(store)
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
        known_nodes=known,
    )
    return Term(state, view, record, me)


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
    return config.replication is Replication.SYNC and bool(store.doubt)


def own_position(store: StorePort) -> int:
    """What counts as held by the master itself: fsynced in sync flush, written in async flush."""
    log = store.log
    return log.flushed.value if store.config.flush is FlushMode.SYNC else log.committed.value

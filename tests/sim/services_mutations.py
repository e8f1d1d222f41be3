"""Rules of work queues and transactions, switched off one at a time: the simulation must notice.

A mutation is a list of (module or class, attribute, replacement), as in store_mutations. Cuts and
snapshots of folds have tests of their own (tests/storage/folds), and so have the rules that count
for a moment between append and dispatch (tests/storage/services/test_transactions_at_random.py)."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.store_mutations import Patch, always, dispatch_what_is_written, never, nothing
from tandemlog_server.node.work.progress_writer import ProgressWriter
from tandemlog_server.storage.dispatch.reput import ReputService
from tandemlog_server.storage.folds.transaction_fold import TransactionFold
from tandemlog_server.storage.leases import deliveries, handle_operations, lease_engine
from tandemlog_server.storage.leases.queue_leases import QueueLeases
from tandemlog_server.storage.leases.queue_state import QueueState
from tandemlog_server.storage.services.dead_letters import DeadLetterDesk
from tandemlog_server.storage.services.lease_desk import LeaseDesk
from tandemlog_server.storage.services.transaction_desk import Ended, TransactionDesk


def all_are_the_same(log_offsets: Any, fingerprints: Any, handles: Any) -> Any:
    return np.ones(len(log_offsets), np.bool_)


def confirmed_when_written(this: ProgressWriter) -> None:
    written = SimpleNamespace(value=this._store.log.wrote.value)
    store, this._store = this._store, SimpleNamespace(confirmed=written)  # type: ignore[assignment]
    try:
        CHECK_CONFIRMED(this)
    finally:
        this._store = store


def has_begun(this: Any) -> bool:
    return this._began_at is not None


def nothing_is_said(this: LeaseDesk, group: str) -> dict[str, Any]:
    return {}


def all_are_buried(this: DeadLetterDesk, letters: Any) -> Any:
    return letters.offsets.tolist()


def none_wait(queue: QueueLeases, start: int, keys: Any) -> Any:
    return np.zeros(len(keys), np.bool_)


def all_are_free(this: QueueLeases, keys: Any) -> Any:
    return np.ones(len(keys), np.bool_)


def ends_too_soon(this: QueueLeases, now_ms: int) -> int:
    return EXPIRE(this, now_ms + 700)


def due_too_soon(this: QueueLeases, now_ms: int) -> int:
    return NEXT_DUE(this, now_ms) - 700


def no_outcome(this: TransactionDesk, transaction_id: str, *, committed: bool) -> None:
    return None


def forgotten(this: TransactionDesk, request: Any, ended: Ended) -> Ended:
    return ended


def nothing_to_finish(this: TransactionDesk) -> int:
    return 0


CHECK_CONFIRMED = ProgressWriter._check_confirmed
EXPIRE = QueueLeases.expire
NEXT_DUE = QueueLeases.next_due_ms
MUTATIONS: dict[str, list[Patch]] = {
    "leases are for unconfirmed messages, and handles for places": [
        (ReputService, "run_once", dispatch_what_is_written),
        (handle_operations, "is_same_message", all_are_the_same),
        (lease_engine, "is_same_message", all_are_the_same),
    ],
    "sync does not wait for the confirmation": [
        (ProgressWriter, "_check_confirmed", confirmed_when_written)
    ],
    "a term leases before it knows what the last one was told": [
        (LeaseDesk, "ready", property(has_begun)), (LeaseDesk, "has_applied", always),
    ],
    "a term does not ask the log": [(LeaseDesk, "said", nothing_is_said)],
    "no STATE is written when the log has grown": [(LeaseDesk, "state_is_due", never)],
    "the log does not say how often a message was tried": [(QueueState, "_merge", nothing)],
    "a handle counts whoever has the message": [
        (handle_operations, "State", SimpleNamespace(LEASED=99))
    ],
    "a lease ends too soon": [
        (QueueLeases, "expire", ends_too_soon), (QueueLeases, "next_due_ms", due_too_soon),
    ],
    "order is not kept": [
        (deliveries, "_behind_others", none_wait), (QueueLeases, "_shut", never),
        (QueueLeases, "free", all_are_free),
    ],
    "a message is done without its dead letter": [(DeadLetterDesk, "bury", all_are_buried)],
    "a term decides before it knows the last one's decisions": [
        (TransactionDesk, "ready", property(has_begun))
    ],
    "an outcome is not the only one": [(TransactionDesk, "_outcome", no_outcome)],
    "what is appended is not remembered": [(TransactionDesk, "_remember", forgotten)],
    "what was decided is not finished": [(TransactionDesk, "finish", nothing_to_finish)],
    "offsets of a transaction stay in its record": [(TransactionFold, "_set_offsets", nothing)],
}  # fmt: skip

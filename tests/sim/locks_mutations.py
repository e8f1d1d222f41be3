"""Rules of the locks, each switched off: the simulation must notice every one.

A mutation is a patch of one method or number, by its name. Two rules have no mutation, as runs of
this length hardly need them: that a master asks whether it leads before it grants, and that
an unlock counts only by the connections that locked. Their unit tests hold them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tandemlog_server.node.remoting.clients.lock_methods import LockMethods
from tandemlog_server.rocketmq.clients import queue_locks
from tandemlog_server.rocketmq.clients.queue_locks import Owners, QueueLocks


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is replaced, by what."""

    target: object
    name: str
    instead: Any


async def _tells_before_it_is_safe(self: LockMethods, groups: Iterable[str], term: int) -> None: ...


def _knows_no_owners(self: QueueLocks[Any], owners: Owners, now: float) -> None:
    _begin(self, {}, now)


def _frees_with_the_connection(self: QueueLocks[Any], connection: Any, now: float) -> None:
    for group in self._groups.values():
        for lock in group.locks.values():
            if connection in lock.connections:
                lock.until = now


_begin = QueueLocks.begin

MUTATIONS: Mapping[str, Mutation] = {
    "an owner is told before it is safe": Mutation(LockMethods, "_write", _tells_before_it_is_safe),
    "the next master knows no owners": Mutation(QueueLocks, "begin", _knows_no_owners),
    "owners of an earlier term are not waited for": Mutation(queue_locks, "GRACE_S", 0.0),
    "a lock ends before its client's trust": Mutation(queue_locks, "LOCK_S", 15.0),
    "a closed connection ends its locks": Mutation(
        QueueLocks, "closed", _frees_with_the_connection
    ),
}

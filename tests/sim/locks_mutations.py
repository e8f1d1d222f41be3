"""Rules of the locks, each switched off: the simulation must notice every one.

A mutation is a patch of one method or number, by its name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandemlog_server.node.remoting.lock_methods import LockMethods
from tandemlog_server.node.roles.role import CurrentRole
from tandemlog_server.rocketmq.clients import queue_locks
from tandemlog_server.rocketmq.clients.queue_locks import Owners, Queue, QueueLocks


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is replaced, by what."""

    target: object
    name: str
    instead: Any


async def _asks_nobody(self: CurrentRole) -> int:
    epoch = self.role.epoch()
    if epoch is None:
        raise self.role.no_master("ask")
    return epoch


async def _tells_before_it_is_safe(self: LockMethods, groups: Iterable[str], term: int) -> None: ...


def _knows_no_owners(self: QueueLocks[Any], owners: Owners, now: float) -> None:
    _begin(self, {}, now)


def _unlocks_for_anybody(
    self: QueueLocks[Any], name: str, client_id: str, connection: Any, queues: Sequence[Queue]
) -> None:
    group = self._groups.get(name)
    for queue in queues if group is not None else ():
        assert group is not None
        lock = group.locks.get(queue)
        if lock is not None and lock.client_id == client_id:
            self._remove(name, group, queue)
            group = self._groups.get(name)
            if group is None:
                return


def _frees_with_the_connection(self: QueueLocks[Any], connection: Any, now: float) -> None:
    for group in self._groups.values():
        for lock in group.locks.values():
            if connection in lock.connections:
                lock.until = now


_begin = QueueLocks.begin

MUTATIONS: Mapping[str, Mutation] = {
    "a master that was deposed grants": Mutation(CurrentRole, "leads", _asks_nobody),
    "an owner is told before it is safe": Mutation(LockMethods, "_write", _tells_before_it_is_safe),
    "the next master knows no owners": Mutation(QueueLocks, "begin", _knows_no_owners),
    "owners of an earlier term are not waited for": Mutation(queue_locks, "GRACE_S", 0.0),
    "a lock ends before its client's trust": Mutation(queue_locks, "LOCK_S", 15.0),
    "an unlock counts by any connection": Mutation(QueueLocks, "unlock", _unlocks_for_anybody),
    "a closed connection ends its locks": Mutation(
        QueueLocks, "closed", _frees_with_the_connection
    ),
}

"""Locks of ordered consumption: which client alone may consume a queue. Pure: `now` comes in.

    client   asks ──▶ granted ──▶ consumes, trusts its lock for 30 s ──▶ asks again every 20 s
    master              │ lock of 60 s
                        ▼ only if the owner is another one than before
              owners, durable and on the in-sync set, then the answer
                        │
    next master   ◀─────┘ the owner may continue at once; no other one before GRACE_S

Invariant: two clients never trust a lock of one queue at one time.

A client counts its 30 s from the moment when it hears the answer, and hears none later than its
timeout after it asked. So one that asked before a moment t trusts nothing after t + GRACE_S,
however late a master that was stopped sends its answer. While one master leads, a lock lives
LOCK_S, which is longer. After a change of master each lock counts as one of the moment when the
term began: a client that was answered had asked before it, since a master answers only if it led at
some moment after the request came. An owner that was written and never answered keeps others away
for nothing, which is safe. Renewals change no owner, and are not written.

A closed connection proves nothing: its client may live, and trust. But no client asks by it any
more, so locks without another connection end when that trust does. An unlock counts only if every
request for that lock came by its connection: one that was delayed elsewhere, in another node that
stood still, would free what the client has asked for since. Otherwise the lock ends by its time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

from tandemlog.format.words import quoted
from tandemlog_server.storage.shares import Shares

LOCK_S: Final = 60.0
"""RocketMQ's lock without a renewal."""
TRUST_S: Final = 30.0
"""How long a client consumes after it heard that a queue is locked for it."""
ANSWER_S: Final = 5.0
"""More than a client waits for an answer (1 to 3 s), and what clocks may differ in TRUST_S."""
GRACE_S: Final = TRUST_S + ANSWER_S
EARLIER: Final = "an earlier term"
"""Whose share the locks are that were granted then."""
MAX_LOCKS: Final = 100_000
"""Of the node."""

Queue: TypeAlias = tuple[str, int]
"""Topic and queue id."""
Owners: TypeAlias = Mapping[str, Mapping[Queue, str]]
"""By group: the client of each queue."""
C = TypeVar("C")


class TooManyLocksError(Exception):
    """No room for one more; the text names the bound."""


@dataclass(slots=True)
class _Lock(Generic[C]):
    """`version`: of the owners, from which on this one is among them; `connections`: those open by
    which the client asked."""

    client_id: str
    holder: str
    version: int
    connections: set[C] = field(default_factory=set)
    granted_at: float = 0.0
    until: float = 0.0


@dataclass(slots=True)
class _Group(Generic[C]):
    """`version`: of the newest owner in it; `confirmed`: of the newest one that the in-sync set
    has."""

    locks: dict[Queue, _Lock[C]] = field(default_factory=dict)
    version: int = 0
    confirmed: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """Queues that are the client's. `version`: of the group's owners that must be confirmed before
    it is told; 0 if they are."""

    queues: tuple[Queue, ...]
    version: int = 0


class QueueLocks(Generic[C]):
    """See the module. Of one term of a master: `begin` another one for the next term."""

    def __init__(self, max_locks: int = MAX_LOCKS) -> None:
        self._shares = Shares(max_locks)
        self._groups: dict[str, _Group[C]] = {}
        # of all groups, so that one which ends and begins again has none twice
        self._version = 0
        self.outdated: set[str] = set()
        """Groups with locks that have ended and are still written as a client's: no harm is in
        that, so they may be written at any time."""

    @property
    def count(self) -> int:
        return self._shares.held

    def begin(self, owners: Owners, now: float) -> None:
        """A term begins, with the owners that its master has from the one before."""
        self._groups, self._shares = {}, Shares(self._shares.limit)
        self._version += 1
        for name, queues in owners.items():
            # what the other nodes of the in-sync set have of it is not known: nothing is confirmed
            group = self._groups[name] = _Group(version=self._version)
            for queue, client_id in queues.items():
                group.locks[queue] = _Lock(
                    client_id, EARLIER, self._version, set(), now, now + GRACE_S
                )
                self._shares.take(EARLIER)

    def lock(
        self,
        name: str,
        client_id: str,
        connection: C,
        queues: Sequence[Queue],
        now: float,
        holder: str = "",
    ) -> Grant:
        """Those of `queues` that are the client's for LOCK_S from now; `holder`: whose share of
        the locks they are. Raises TooManyLocksError, and grants nothing."""
        group = self._groups.get(name) or _Group()
        wanted = [
            queue
            for queue in dict.fromkeys(queues)
            if (lock := group.locks.get(queue)) is None
            or lock.client_id == client_id
            or lock.until <= now
        ]
        self._check_room(holder, sum(queue not in group.locks for queue in wanted))
        self._version += 1
        newest = 0
        for queue in wanted:
            lock = group.locks.get(queue)
            if lock is None or lock.client_id != client_id:
                if lock is not None:
                    self._shares.give_back(lock.holder)
                self._shares.take(holder)
                lock = group.locks[queue] = _Lock(client_id, holder, self._version)
                group.version = self._version
            lock.connections.add(connection)
            lock.granted_at, lock.until = now, now + LOCK_S
            newest = max(newest, lock.version)
        if wanted:
            self._groups[name] = group
        return Grant(tuple(wanted), newest if newest > group.confirmed else 0)

    def _check_room(self, holder: str, more: int) -> None:
        if more and not self._shares.may_take(holder, more):
            raise TooManyLocksError(
                f"{quoted(holder)} has locked {self._shares.of(holder)} queues on this node, its "
                f"share of {self._shares.limit} is {self._shares.most(holder)}: stop some of the "
                "consumers that read in order"
            )

    def unlock(self, name: str, client_id: str, connection: C, queues: Sequence[Queue]) -> None:
        """The client has given them up."""
        group = self._groups.get(name)
        for queue in queues if group is not None else ():
            assert group is not None, "there are no queues without it"
            lock = group.locks.get(queue)
            if lock and lock.client_id == client_id and lock.connections == {connection}:
                self._remove(name, group, queue)

    def closed(self, connection: C, now: float) -> None:
        """No client renews by this connection any more."""
        for group in self._groups.values():
            for lock in group.locks.values():
                if connection not in lock.connections:
                    continue
                lock.connections.discard(connection)
                if not lock.connections:
                    lock.until = min(lock.until, lock.granted_at + GRACE_S)

    def expire(self, now: float) -> None:
        """Forget locks that are over."""
        for name, group in list(self._groups.items()):
            for queue in [each for each, lock in group.locks.items() if lock.until <= now]:
                self._remove(name, group, queue)

    def owners(self, name: str) -> tuple[int, dict[Queue, str]]:
        """Of one group, to be written, and the version of that."""
        self.outdated.discard(name)
        group = self._groups.get(name)
        if group is None:
            return 0, {}
        return group.version, {queue: lock.client_id for queue, lock in group.locks.items()}

    def confirm(self, name: str, version: int) -> None:
        """The owners of that version are durable, and on the in-sync set."""
        group = self._groups.get(name)
        if group is not None:
            group.confirmed = max(group.confirmed, version)

    def is_confirmed(self, name: str, version: int) -> bool:
        group = self._groups.get(name)
        return group is not None and group.confirmed >= version

    def owner(self, name: str, queue: Queue, now: float) -> str:
        """Empty if no client has it."""
        group = self._groups.get(name)
        lock = None if group is None else group.locks.get(queue)
        return lock.client_id if lock is not None and now < lock.until else ""

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def _remove(self, name: str, group: _Group[C], queue: Queue) -> None:
        self._shares.give_back(group.locks.pop(queue).holder)
        self.outdated.add(name)
        if not group.locks:
            del self._groups[name]

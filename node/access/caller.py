"""One call: the connection that it came by, who makes it, and what it holds of the node.

Without an access file and required certificates `who` is None, and everything is allowed: the
checks cost one look at an attribute.
"""

import datetime
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from tandemlog.format.words import quoted

from .access_refusals import denied
from .caller_addresses import host_of
from .identities import Identity, Right
from .usage import Usage


@dataclass(slots=True, eq=False)
class Who:
    """Who a caller has proved to be. `nodes` are the ids of nodes that its proofs name;
    `proof_fault` is what is wrong with a certificate beside a good token. Kept as long as the call:
    `version` says which access file was asked, and `until` when the caller's certificate expires,
    which may be in the middle of a connection."""

    identity: Identity
    nodes: frozenset[str]
    proof_fault: str = ""
    token_hash: bytes | None = None
    certificate: bytes | None = None
    version: int = 0
    until: datetime.datetime | None = None
    access_key: str = ""


class Keeper(Protocol):
    """What a call asks of the doorkeeper later."""

    def renew(self, who: Who) -> None:
        """Raises NotKnownError once the proof of `who` is not valid any more."""

    def refused(self, caller: "Caller", problem: Exception) -> None:
        """A refusal, for the log."""

    def moved_back(self, caller: "Caller", group: str, queues: str) -> None:
        """A group has gone back to lower offsets in these queues: it will read messages again."""


@dataclass(slots=True, eq=False)
class Caller:
    """See the module. `call` is the method, for people. `holder` is whose share of a bound it
    uses: its identity's, or its host's if it has none. That stays as it was when the call came in,
    whatever the access file says later, so that what was counted is counted back."""

    peer: str = ""
    holder: str = ""
    held_bytes: int = 0
    who: Who | None = None
    usages: tuple[Usage, ...] = ()
    call: str = ""
    keeper: Keeper | None = None
    stream: bool = False
    began: float = 0.0
    """Monotonic seconds."""
    counted: bool = False
    """Whether the door has given it a place."""

    def __post_init__(self) -> None:
        if not self.holder:
            self.holder = host_of(self.peer)

    @property
    def name(self) -> str:
        """Of its identity; empty if it has none."""
        return "" if self.who is None else self.who.identity.name

    def renew(self) -> None:
        """With each request of a stream. Raises NotKnownError once its proof is not valid any
        more."""
        if self.who is not None and self.keeper is not None:
            self.keeper.renew(self.who)

    def rights_changed(self) -> bool:
        """Renew it; whether its rights may have changed in this moment. Raises NotKnownError."""
        before = self.restricted
        self.renew()
        return self.restricted is not before

    def refused(self, problem: Exception) -> None:
        """It was not let in, or lacked a right: a line of the log."""
        if self.keeper is not None:
            self.keeper.refused(self, problem)

    def moved_back(self, group: str, queues: str) -> None:
        """See Keeper."""
        if self.keeper is not None:
            self.keeper.moved_back(self, group, queues)

    @property
    def restricted(self) -> Identity | None:
        """The identity whose rights count; None if this caller may do everything."""
        who = self.who
        return None if who is None or who.identity.admin else who.identity

    def reads_all(self) -> bool:
        """Whether this caller may read every topic."""
        identity = self.restricted
        return identity is None or identity.patterns(Right.READ).everything

    def require(self, right: Right, names: Iterable[str]) -> None:
        """Raises DeniedError for the first of `names` that `right` does not cover."""
        identity = self.restricted
        if identity is None:
            return
        patterns = identity.patterns(right)
        if patterns.everything:
            return
        for name in names:
            if not patterns.cover(name):
                raise denied(identity, right, quoted(name))

    def require_writes(self, topics: Iterable[bytes]) -> None:
        """The same for the topics of a put, as they came."""
        identity = self.restricted
        if identity is None:
            return
        patterns = identity.patterns(Right.WRITE)
        if patterns.everything:
            return
        for index, topic in enumerate(topics):
            if not patterns.cover_bytes(topic):
                problem = denied(identity, Right.WRITE, quoted(topic.decode(errors="replace")))
                problem.index = index
                raise problem

    def require_admin(self, what: str) -> None:
        """`what` is the call in words."""
        identity = self.restricted
        if identity is not None:
            raise denied(identity, Right.ADMIN, what)

    def require_see(self, topics: Iterable[str]) -> None:
        """Raises DeniedError for the first topic that it may neither read nor write."""
        identity = self.restricted
        if identity is None:
            return
        for topic in topics:
            if not identity.may_see(topic):
                raise denied(identity, Right.READ, quoted(topic))

    def seen(self, topics: Iterable[str]) -> list[str]:
        """Those of `topics` that it may know of, in their order."""
        identity = self.restricted
        return [each for each in topics if identity is None or identity.may_see(each)]

    def consumed(self, groups: Iterable[str]) -> list[str]:
        """Those of `groups` that it may consume as, in their order."""
        identity = self.restricted
        may = None if identity is None else identity.patterns(Right.CONSUME).cover
        return [each for each in groups if may is None or may(each)]

    @contextmanager
    def long_poll(self) -> Iterator[None]:
        """While a pull waits for a message. Raises OverLimitError if it is one too many."""
        self.begin_long_poll()
        try:
            yield
        finally:
            self.end_long_poll()

    def begin_long_poll(self) -> None:
        """The same, until `end_long_poll`."""
        for usage in self.usages:
            usage.check_long_poll()
        for usage in self.usages:
            usage.long_polls += 1

    def end_long_poll(self) -> None:
        """Its pull waits no more."""
        for usage in self.usages:
            usage.long_polls -= 1

    def hold(self, size: int) -> None:
        """Of a put: bytes that are in flight from now on, or not any more."""
        for usage in self.usages:
            usage.hold(size)

    def spend(self, size: int, now: float, *, calls: int = 0) -> float:
        """Bytes in or out; returns for how many seconds no more should be spent."""
        wait = 0.0
        for usage in self.usages:
            wait = max(wait, usage.spend(size, now, calls=calls))
        return wait

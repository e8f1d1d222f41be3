"""The confirm offset: what every in-sync member holds, so what no single failure can take away.

    confirm = min(own position, durable offset of every other member of every set in force)

A set in force is the recorded in-sync set and each proposed one that is not yet known to be
recorded or obsolete: whichever of them a failover uses, its members must hold the bytes. An
acknowledgement counts only if it comes from the member's present incarnation, was given in this
master's epoch, and does not exceed what was sent to it. If any set in force has fewer than
`required` members, nothing more is confirmed. The offset never moves back.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..protocol.frames import Ack
from ..state import Member


@dataclass(slots=True)
class Match:
    """How far one slave is. `durable` None: nothing acknowledged in this epoch and stream; `round`:
    the newest one that it has answered there."""

    incarnation: str
    sent: int
    durable: int | None = None
    round: int = 0


class ConfirmTracker:
    """See the module. `own` is the master's position that counts for itself."""

    def __init__(self, me: Member, epoch: int, confirmed: int, own: int, required: int) -> None:
        self.me = me
        self.epoch = epoch
        self.value = confirmed
        self.own = own
        self.required = required
        self.matches: dict[str, Match] = {}

    def attach(self, member: Member, start: int) -> None:
        """A slave's new stream sends from `start`; what it acknowledged before is forgotten."""
        self.matches[member.node_id] = Match(member.incarnation, start)

    def forget(self, node_id: str) -> None:
        """Nothing that this slave has acknowledged counts until its next stream."""
        match = self.matches.get(node_id)
        if match is not None:
            match.durable, match.round = None, 0

    def sent(self, node_id: str, end: int) -> None:
        """Bytes below `end` have gone to this slave: more it cannot have."""
        match = self.matches[node_id]
        match.sent = max(match.sent, end)

    def acknowledge(self, node_id: str, ack: Ack) -> bool:
        """Take an acknowledgement in; False if it does not count."""
        match = self.matches.get(node_id)
        if match is None or not counts(ack, self.epoch, match):
            return False
        match.durable = max(match.durable or 0, ack.durable)
        match.round = max(match.round, ack.round)
        return True

    def durable(self, member: Member) -> int | None:
        """What `member` is known to hold durably under this epoch."""
        if member == self.me:
            return self.own
        match = self.matches.get(member.node_id)
        if match is None or match.incarnation != member.incarnation:
            return None
        return match.durable

    def round_of(self, member: Member) -> int:
        """The newest round that `member` has answered under this epoch."""
        match = self.matches.get(member.node_id)
        answered = match is not None and match.incarnation == member.incarnation
        return match.round if match is not None and answered else 0

    def advance(self, sets: Collection[frozenset[Member]]) -> int:
        """The confirm offset under the sets in force."""
        if min(len(each) for each in sets) >= self.required:
            on_all = lowest(self.durable(member) for member in frozenset().union(*sets))
            if on_all is not None:
                self.value = max(self.value, on_all)
        return self.value


def counts(ack: Ack, epoch: int, match: Match) -> bool:
    """Whether `ack` was given under `epoch`, by the disk that is attached, for bytes it got."""
    return (
        ack.epoch == epoch
        and ack.incarnation == match.incarnation
        and max(ack.durable, ack.received, ack.reput) <= match.sent
    )


def lowest(positions: Iterable[int | None]) -> int | None:
    """The smallest position; None if one is unknown."""
    listed = [*positions]
    known = [position for position in listed if position is not None]
    return min(known, default=None) if len(known) == len(listed) else None

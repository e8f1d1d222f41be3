"""What producers were told of their transactions, and whether it is kept, whatever the code is.

    told      the outcome that was confirmed to somebody: there is no other one, on any node
    wanted    what its producer asks for; another may have rolled it back (checks without an answer)

Messages of a transaction that is committed are there once, those of another one never. Offsets of a
group count with the transaction that they are in.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sim.ha_nodes import ViolationError
from sim.store_ledger import Place, told

OFFSETS_GROUP = "transformers"


@dataclass(eq=False)
class Transaction:
    """See the module. `bodies` are those whose halves are acknowledged, `sent` all. `offset`: what
    it says of the queue of OFFSETS_GROUP, -1 for nothing."""

    name: str
    sent: dict[bytes, str] = field(default_factory=dict)
    bodies: set[bytes] = field(default_factory=set)
    offset: int = -1
    wanted: bool | None = None
    asked_to_commit: bool = False
    told: bool | None = None
    lost: bool = False
    """One of its messages was refused: it cannot be committed as a whole."""

    def tell(self, *, committed: bool) -> None:
        if self.told is not None and self.told != committed:
            raise ViolationError(f"{self.name}: told {self.told}, then {committed}")
        if committed and not self.asked_to_commit:
            raise ViolationError(f"{self.name} is committed, and nobody has asked for it")
        self.told = committed


@dataclass
class TransactionPromises:
    """See the module. `seen_at`: log offset of a message that retention may have deleted since."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    of_body: dict[bytes, Transaction] = field(default_factory=dict)
    seen_at: dict[bytes, int] = field(default_factory=dict)

    def see(self, place: Place, body: bytes) -> None:
        """A reader got this message."""
        mine = self.of_body.get(body)
        if mine is None:
            return
        if mine.told is False or not mine.asked_to_commit:
            raise ViolationError(f"{place} is of {mine.name}, which is not committed")
        if mine.sent[body] != place[0]:
            raise ViolationError(f"{told(body)} was sent to {mine.sent[body]}, not to {place[0]}")

    def least_offset(self) -> int:
        """Of OFFSETS_GROUP, by what was told."""
        mine = (each.offset for each in self.transactions.values() if each.told)
        return max(mine, default=-1)

    def check(
        self, name: str, came: Iterable[bytes], log_begin: int, outcomes: dict[str, bool]
    ) -> None:
        """What the log of node `name` holds outside of the topic of halves."""
        there = {body for body in came if body in self.of_body}
        for each in self.transactions.values():
            mine = {body for body in each.sent if body in there}
            gone = {body for body in each.sent if 0 <= self.seen_at.get(body, -1) < log_begin}
            outcome = outcomes.get(each.name, each.told)
            if each.told is not None and outcome != each.told:
                raise ViolationError(f"{name}: {each.name} was told {each.told}, it is {outcome}")
            if not outcome and mine:
                raise ViolationError(f"{name}: {each.name} is {outcome}, and {len(mine)} came")
            missing = each.bodies - mine - gone
            if outcome and missing:
                raise ViolationError(
                    f"{name}: {each.name} is committed, and {told(min(missing))} is not there"
                )

"""What the comparison of one fold found: what differs, and what the log no longer tells.

    log        |.. deleted ..| L .......... S ........|      S: the snapshot is true up to here
    snapshot   everything up to S, of the deleted part what still counts
    fresh      only what L .. S says

The bytes of two snapshots of one state may differ: what has ended is forgotten at different times,
and what stands in the deleted part only one of them knows. So a comparison asks of each entry what
both must know. What only the deleted part could tell is counted as unknown; it is no difference.
"""

from dataclasses import dataclass, field
from typing import Final

MOST_NAMED: Final = 10
"""Differences of one fold that are told one by one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`position` is a log offset, or the queue offset that `text` names."""

    position: int
    text: str


@dataclass(slots=True)
class Findings:
    """See the module. `count` differences, of which `named` are the first."""

    named: list[Difference] = field(default_factory=list)
    count: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, position: int, text: str) -> None:
        self.count += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(Difference(position, text))

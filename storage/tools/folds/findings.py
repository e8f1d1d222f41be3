"""What the comparison of one fold found: what differs, and what the log no longer tells.

    log        |.. deleted ..| L .......... S ........|      S: the snapshot is true up to here
    snapshot   everything up to S, of the deleted part what still counts
    fresh      only what L .. S says

The bytes of two snapshots of one state may differ: each forgets at its own time what has ended, and
the fresh one has never seen the deleted records. So a comparison asks of each entry only what both
must know. What only the deleted records could tell is counted as unknown; it is no difference.
"""

from dataclasses import dataclass, field
from typing import Final

MOST_NAMED: Final = 10
"""Differences of one fold that are listed one by one."""


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

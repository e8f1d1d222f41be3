"""How a bound is divided among callers: a large share for one, and always room for one more.

    limit |#### a ####|## b ##|.......... free ..........|
    a may take more while   held by a  <=  WEIGHT x what would be free afterwards
    who holds nothing       takes what is free, also what the others may not touch

So one caller alone comes to three quarters of a bound and the next one to three quarters of the
rest; as things end and others begin, k of them come to 3 / (3k + 1) each. The next caller gets in,
however much the others ask for. Nothing has to be configured for that, and no caller has to be
known before. A `reserve` is always kept for those who hold nothing.

A holder is an identity; where there is none, a host. Its name is any text. Pure: counts, and no
clock.
"""

from collections.abc import Mapping

WEIGHT = 3


class Shares:
    """See the module. What is counted by `take` must be given back by `give_back`. With `oversize`
    more than the limit is given to one who comes while no one holds anything: else it would never
    be served."""

    def __init__(self, limit: int, *, reserve: int = 0, oversize: bool = False) -> None:
        self.limit = limit
        self._oversize = oversize
        self.held = 0
        """By all holders."""
        self._reserve = min(reserve, limit)
        self._by_holder: dict[str, int] = {}

    @property
    def holders(self) -> Mapping[str, int]:
        """What each of those holds that hold something."""
        return self._by_holder

    def of(self, holder: str) -> int:
        return self._by_holder.get(holder, 0)

    def may_take(self, holder: str, amount: int = 1) -> bool:
        """Whether `amount` more is within the share of `holder`."""
        own, free = self._by_holder.get(holder, 0), self.limit - self.held
        if not own:
            return amount <= free or (self._oversize and not self.held)
        return own + amount <= WEIGHT * (free - self._reserve - amount)

    def most(self, holder: str) -> int:
        """How much `holder` may have now, with what it holds: for the text of a refusal."""
        others = self.held - self._by_holder.get(holder, 0)
        return max(WEIGHT * (self.limit - others - self._reserve) // (WEIGHT + 1), 0)

    def take(self, holder: str, amount: int = 1) -> None:
        """Count `amount`, whether it is within the share or not."""
        if amount:
            self.held += amount
            held = self._by_holder.get(holder, 0) + amount
            if held:
                self._by_holder[holder] = held
            else:
                del self._by_holder[holder]

    def try_take(self, holder: str, amount: int = 1) -> bool:
        """Take `amount` if it is within the share; whether it was."""
        if not self.may_take(holder, amount):
            return False
        self.take(holder, amount)
        return True

    def give_back(self, holder: str, amount: int = 1) -> None:
        """What was taken is free again."""
        self.take(holder, -amount)

"""Whose the rows of all queues are: numbers for holders, and the share of each of the node's bound.

A holder is an identity, or a host where there is none (shares.py). A row has its holder's number,
so that the share is given back when the message is done, however it ends.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..shares import Shares

OWN_HOLDER: Final = ""
"""Of rows that the log told of: no caller is known. Its number is 0."""
_MOST: Final = 0xFFFF


class RowOwners:
    """See the module; `limit` rows in all."""

    def __init__(self, limit: int) -> None:
        self.shares = Shares(limit)
        self.freed_some = False
        """Rows have gone since this was set to False."""
        self._names: list[str] = [OWN_HOLDER]
        self._number_of: dict[str, int] = {OWN_HOLDER: 0}

    def room(self, holder: str) -> int:
        """How many more rows `holder` may have."""
        return max(self.shares.most(holder) - self.shares.of(holder), 0)

    def number(self, holder: str) -> int:
        """The number for rows of `holder`; that of a holder without rows is used again. With too
        many holders it is OWN_HOLDER's."""
        number = self._number_of.get(holder)
        if number is not None:
            return number
        number = next(
            (each for each, name in enumerate(self._names) if each and not self.shares.of(name)),
            len(self._names),
        )
        if number > _MOST:
            return 0
        if number == len(self._names):
            self._names.append(holder)
        else:
            del self._number_of[self._names[number]]
            self._names[number] = holder
        self._number_of[holder] = number
        return number

    def take(self, number: int, count: int) -> None:
        """There are `count` more rows with this number."""
        self.shares.take(self._names[number], count)

    def freed(self, numbers: NDArray[np.uint16]) -> None:
        """Rows with these numbers are gone."""
        if not len(numbers):
            return
        self.freed_some = True
        if (numbers == numbers[0]).all():
            self.shares.give_back(self._names[int(numbers[0])], len(numbers))
            return
        for number, count in enumerate(np.bincount(numbers).tolist()):
            if count:
                self.shares.give_back(self._names[number], count)

"""How much may be read in the event loop before all else that waits for the loop has its turn.

    a turn of the loop    read 96 · read 96 · read 96 ║ read ─▶ in line, for the next turn: from 0
                          ────────────────────────────▲
                                               MOST_MESSAGES

One read of a socket brings hundreds of pulls, and one turn of the loop serves all sockets that have
something: each pull alone is small, and all of them together took seconds. The bound is for all
callers together, and is passed by one read at most. Who can wait for a turn stands in line; what
cannot is read by a thread, which costs twice as much.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

MOST_MESSAGES: Final = 256
"""Of one turn of the loop: a few milliseconds, with the answers that they are in."""


class LoopShare:
    """See the module. Belongs to the loop."""

    def __init__(self, most_messages: int = MOST_MESSAGES) -> None:
        self._most = most_messages
        self._taken = 0
        self._line: deque[Callable[[], None]] = deque()
        self._ends = False

    def has_room(self) -> bool:
        """Whether this turn of the loop may read more."""
        return self._taken < self._most

    def is_free(self) -> bool:
        """Whether a read that begins now has no other one before it."""
        return not self._line and self.has_room()

    def take(self, messages: int) -> None:
        """So many were read; a read that found none costs as much as one."""
        self._taken += max(1, messages)
        self._end_turn()

    def in_line(self, read: Callable[[], None]) -> None:
        """Call `read` in a later turn, after those that came before it. It must not raise."""
        self._line.append(read)
        self._end_turn()

    def _end_turn(self) -> None:
        if not self._ends:
            self._ends = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._taken, self._ends = 0, False
        while self._line and self.has_room():
            self._line.popleft()()
        if self._line:
            self._end_turn()

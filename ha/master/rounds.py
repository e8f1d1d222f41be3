"""Does this master still lead? A round of questions, as Raft asks them before a read.

    request ─▶ round n ─▶ a chunk to every slave ─▶ "n", in this epoch ─▶ of every member: it led
    request ─▶ round n+1 ...

What a master refuses, or reads from its tables, may be wrong from the moment in which another one
has been elected, and a master that has lost only the coordinator is not told of that. A valid
lease excludes it; where the lease is over, the members of the in-sync set know. A successor is
always elected from that set, and a node that leads acknowledges nothing to another master. So if
every member of every set in force has acknowledged, in this epoch, a question that was sent after
the request came, no term had begun by then that this master does not know: its answer was true at
that moment. That is as sure as an acknowledged put, and rests on the same rule (confirm.py).

A master whose set is itself alone can ask no other node: it needs its lease. So does one with a
member that cannot answer: a node of an older version, or a broker that follows by another protocol.

One number serves all that wait when it is sent: a stream sends the newest one.
"""

import asyncio
from collections.abc import Callable, Collection

from ..state import Member


def led(
    sets: Collection[frozenset[Member]],
    me: Member,
    number: int,
    round_of: Callable[[Member], int],
) -> bool:
    """Whether every other member of every set in force has answered round `number` or a later
    one."""
    return all(
        len(members) > 1 and all(round_of(each) >= number for each in members - {me})
        for members in sets
    )


class RoundWaiters:
    """Of one master; all methods belong to the loop. `ask` begins a round and gives its number, 0
    where it can have no answer; `answered(number)` says whether every member has answered it."""

    def __init__(self, ask: Callable[[], int], answered: Callable[[int], bool]) -> None:
        self._ask = ask
        self._answered = answered
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def wait(self, timeout_s: float) -> bool:
        """Whether this master led at a moment after this call."""
        number = self._ask()
        if not number:
            return False
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (number, done)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await done
        except TimeoutError:
            return False
        finally:
            self._waiting.remove(entry)
        return True

    def look(self) -> None:
        """After every acknowledgement, and every change of the set."""
        for number, done in self._waiting:
            if not done.done() and self._answered(number):
                done.set_result(None)

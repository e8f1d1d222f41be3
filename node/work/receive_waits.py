"""How many receives may wait for work at a time: a bound for the node, and a share for each caller.

nothing there ─▶ room? ─▶ in the line of the term (waiting_receives.py) ─▶ woken, or time over
                  └ no: BUSY
"""

import asyncio

from tandemlog_server.storage.shares import Shares

from ..access.caller import Caller
from ..pulls.waiting_places import require_place
from .waiting_receives import Waiter
from .work_term import WorkTerm


class ReceiveWaits:
    """`long_polls`: of all callers together. Belongs to the loop."""

    def __init__(self, long_polls: int) -> None:
        self._shares = Shares(long_polls)

    async def wait(self, term: WorkTerm, waiter: Waiter, caller: Caller, deadline: float) -> None:
        """Until there may be work, or the deadline, by the clock of the loop. Raises
        RequestRefusedError (BUSY), and that the term has ended."""
        require_place(self._shares, caller.holder, "receives are waiting on this node")
        with term.waiting.waiting(waiter):
            await self._wait(waiter, caller, deadline)
        term.check()

    async def _wait(self, waiter: Waiter, caller: Caller, deadline: float) -> None:
        self._shares.take(caller.holder)
        try:
            with caller.long_poll():
                async with asyncio.timeout_at(deadline):
                    await waiter.event.wait()
        except TimeoutError:
            pass
        finally:
            self._shares.give_back(caller.holder)

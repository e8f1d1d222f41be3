"""How many receives may wait for work at a time: a bound for the node, and a share for each caller.

nothing there ─▶ room? ─▶ in the line of the term (waiting_receives.py) ─▶ woken, or time over
                  └ no: BUSY
"""

import asyncio

from tandemlog.v1 import common_pb2
from tandemlog_server.storage.shares import Shares

from ..access.caller import Caller
from ..error_status import RequestRefusedError
from .waiting_receives import Waiter
from .work_term import WorkTerm


class ReceiveWaits:
    """`long_polls`: of all callers together. Belongs to the loop."""

    def __init__(self, long_polls: int) -> None:
        self._shares = Shares(long_polls)

    async def wait(self, term: WorkTerm, waiter: Waiter, caller: Caller, deadline: float) -> None:
        """Until there may be work, or the deadline, by the clock of the loop. Raises
        RequestRefusedError (BUSY), and that the term has ended."""
        self._check_room(caller)
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

    def _check_room(self, caller: Caller) -> None:
        shares, holder = self._shares, caller.holder
        if not shares.may_take(holder):
            raise RequestRefusedError(
                common_pb2.BUSY,
                f"{shares.held} receives are waiting on this node, {shares.of(holder)} of them of "
                f"this identity or host; the limit limits.long_polls is {shares.limit} for all, "
                f"{shares.most(holder)} of it for one now; try again later, or without wait_ms",
                field="wait_ms",
                limit=shares.limit,
                actual=shares.held + 1,
            )

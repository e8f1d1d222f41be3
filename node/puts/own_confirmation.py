"""Waiting for the confirmation of what a service of this node has appended."""

import asyncio

from tandemlog.v1 import common_pb2
from tandemlog_server.storage.errors import StoreError

from ..error_status import RequestRefusedError
from .confirm_waiters import ConfirmWaiters, Outcome


class _OwnAppend:
    """A waiter; see ConfirmWaiters."""

    def __init__(self, end_offset: int, epoch: int, deadline: float) -> None:
        self.end_offset = end_offset
        self.epoch = epoch
        self.confirm_deadline = deadline
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def resolve(self, outcome: Outcome, failure: StoreError | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


async def require_confirmed(
    waiters: ConfirmWaiters, end_offset: int, epoch: int | None, timeout_s: float, what: str
) -> None:
    """Return once the log is confirmed up to `end_offset`, by this node as the master of `epoch`.
    Raises RequestRefusedError (OUTCOME_UNKNOWN) if that is not known; `what` was stored."""
    loop = asyncio.get_running_loop()
    waiter = _OwnAppend(end_offset, epoch or 0, loop.time() + timeout_s)
    waiters.add(waiter)
    waiters.check()
    outcome = await waiter.outcome
    if outcome is not Outcome.CONFIRMED:
        raise RequestRefusedError(
            common_pb2.OUTCOME_UNKNOWN,
            f"{what} is stored up to {end_offset}, but it is not known to be confirmed "
            f"({outcome.value}): ask again",
        )

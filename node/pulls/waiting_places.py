"""How many pulls may wait for a message at one time, and for how many queues, all together.

    a pull waits ─▶ one of limits.long_polls, and one of MAX_WATCHES for each of its queues

Within both bounds an identity (or a host, where there is none) has its share (storage/shares.py).
"""

from typing import Final

from tandemlog.v1 import common_pb2
from tandemlog_server.storage.shares import Shares

from ..error_status import RequestRefusedError

MAX_WATCHES: Final = 1 << 18
"""Queues that all pulls together may wait for."""


def require_place(polls: Shares, holder: str, what: str) -> None:
    """Raises RequestRefusedError (BUSY) where no more may wait for `holder`. `polls` are those that
    wait, within limits.long_polls; `what` says who they are: "pulls are waiting on this node"."""
    if not polls.may_take(holder):
        raise RequestRefusedError(
            common_pb2.BUSY,
            f"{polls.held} {what}, {polls.of(holder)} of them of this "
            f"identity or host; the limit limits.long_polls is {polls.limit} for all, "
            f"{polls.most(holder)} of it for one now; try again later, or without wait_ms",
            field="wait_ms",
            limit=polls.limit,
            actual=polls.held + 1,
        )


class WaitingPlaces:
    """See the module. `limit` pulls. Belongs to the loop."""

    def __init__(self, limit: int) -> None:
        self._polls = Shares(limit)
        self._watches = Shares(MAX_WATCHES)

    def take(self, holder: str, queues: int) -> None:
        """For a pull of `holder` that begins to wait for so many queues. Raises RequestRefusedError
        (BUSY), and nothing is taken."""
        polls, watches = self._polls, self._watches
        require_place(polls, holder, "pulls are waiting on this node")
        if not watches.may_take(holder, queues):
            raise RequestRefusedError(
                common_pb2.BUSY,
                f"pulls on this node are waiting for {watches.held} queues, "
                f"{watches.of(holder)} of them for this identity or host; the limit is "
                f"{MAX_WATCHES} for all, {watches.most(holder)} of it for one now; try again "
                "later, or without wait_ms",
                field="positions",
                limit=MAX_WATCHES,
                actual=watches.held + queues,
            )
        polls.take(holder)
        watches.take(holder, queues)

    def give_back(self, holder: str, queues: int) -> None:
        """It waits no more."""
        self._polls.give_back(holder)
        self._watches.give_back(holder, queues)

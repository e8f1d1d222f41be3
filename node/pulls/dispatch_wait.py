"""The moment between the confirmation of a message and its entry in its queue and the index.

              reputed          confirmed
    ─────────────┼─────────────────┼──────────▶  log
      in queues  │  reput is at it │

A producer has an acknowledgement as soon as its message is confirmed. Who asks next, knowing of the
message, must not hear that the queue ends before it: an answer that depends on the end waits here
until reput has reached what is confirmed now. That takes a millisecond, and DISPATCH_WAIT_S at
most.
"""

import asyncio

from tandemlog.v1 import common_pb2
from tandemlog_server.storage.message_store import MessageStore

from ..error_status import RequestRefusedError

DISPATCH_WAIT_S = 1.0
# A node with more of its log to dispatch is catching up after a crash: what it has is the answer.
DISPATCH_WAIT_BYTES = 64 << 20
DISPATCH_CHECK_S = 0.005


class DispatchWait:
    """See the module; for the event loop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        # where the log ended when this node began to serve
        self._begin = store.log.wrote.value

    def is_caught_up(self) -> bool:
        """Whether `caught_up` would not wait."""
        return self._store.reputed.value >= self._begin

    async def caught_up(self) -> None:
        """After a crash: wait until what was in the log then, and is confirmed, is in queues. No
        client may see a queue shorter than it was."""
        if not self.is_caught_up():
            await self.reach(min(self._begin, self._store.confirmed.value))

    async def ends_known(self) -> None:
        """Wait until the queues have everything that was acknowledged before now. Raises
        RequestRefusedError while that is not so."""
        store, target = self._store, self._acknowledged()
        await self.reach(target)
        if store.reputed.value < target:
            raise RequestRefusedError(
                common_pb2.NOT_IN_SYNC,
                f"the log is confirmed up to {store.confirmed.value} and dispatched up to "
                f"{store.reputed.value}, and what lies before {target} may have been acknowledged: "
                "where queues end is known when it is there; try again in a moment",
            )

    def _acknowledged(self) -> int:
        """The log offset before which everything lies that may have been acknowledged: a master
        that has just begun knows of what its predecessor acknowledged before it is confirmed."""
        term = self._store.epochs.table.last
        return max(self._store.confirmed.value, 0 if term is None else term.start_offset)

    async def confirmed(self) -> bool:
        """Wait until what was acknowledged before now is in queues and index; whether it is."""
        target = self._acknowledged()
        if target - self._store.reputed.value <= DISPATCH_WAIT_BYTES:
            await self.reach(target)
        return self._store.reputed.value >= target

    async def reach(self, target: int) -> None:
        """Wait until the log is dispatched up to the log offset `target`."""
        store, loop = self._store, asyncio.get_running_loop()
        deadline = loop.time() + DISPATCH_WAIT_S
        while (  # noqa: ASYNC110 - a listener for each question would cost more than some looks
            store.reputed.value < target and store.failure is None and loop.time() < deadline
        ):
            await asyncio.sleep(DISPATCH_CHECK_S)

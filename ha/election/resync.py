"""A follower's part in a resync that an operator asked for: its log is set aside, the master sends
all of it again.

    request ─▶ the leader drops the node from the set ─▶ the record is without its disk
                                                                     │ role_loop.py
                          stops following ─▶ reads the record again: still without it?
                                                                     │
    follows again with an empty log ◀─ request gone ◀─ log aside ◀─ new incarnation

The node decides by keys that may be old: meanwhile the leader may have let it join, and dropped the
node that held the second copy. So it stops following first, after which no acknowledgement can
depend on it, and then reads the keys again.

Each step leaves a safe state behind. A crash before the new incarnation is durable changes nothing;
after it, this disk is a new one, which is in no set and cannot be elected, whatever its log holds.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from ..coordinator.coordinator import Coordinator
from ..coordinator.coordinator_errors import CoordinatorError
from .key_values import MemberValue, RequestValue
from .keys import ClusterKeys
from .role_host import RoleHost
from .snapshot import Snapshot
from .transactions import ask, started_over

logger = logging.getLogger(__name__)


class Resync:
    """See the module. `done` is the last request that was carried out, or failed. Each is tried
    once: if the coordinator does not hear of it, the request ends with its lease. `read_keys`
    reads the keys again."""

    def __init__(
        self,
        coordinator: Coordinator,
        keys: ClusterKeys,
        host: RoleHost,
        read_keys: Callable[[], Awaitable[Snapshot]],
    ) -> None:
        self.done = ""
        self._coordinator = coordinator
        self._keys = keys
        self._host = host
        self._read_keys = read_keys

    async def run(
        self,
        request: RequestValue,
        me: Callable[[], MemberValue],
        lease: int,
    ) -> None:
        """Do it, if it is still to be done, and say what became of it. `me` is what the node says
        of itself; `lease` its own, 0 without one."""
        await self._host.wait("this node is about to start over")
        try:
            snapshot = await self._read_keys()
        except CoordinatorError as error:
            logger.info("not starting over now: the record could not be read: %s", error)
            return
        if not is_due(snapshot, request, me()):
            logger.info("not starting over now: the request or the in-sync set has changed")
            return
        self.done = request.request_id
        try:
            epoch = 0 if snapshot.record is None else snapshot.record.epoch
            await self._host.start_over("an operator asked for it", epoch)
            txn = started_over(self._keys, snapshot, me(), lease)
        except Exception as error:
            logger.exception("the log could not be set aside")
            answer = replace(request, outcome=f"the log could not be set aside: {error}")
            txn = ask(self._keys, snapshot, answer)
        with suppress(CoordinatorError):
            await self._coordinator.txn(txn)
            await self._read_keys()


def is_due(snapshot: Snapshot, request: RequestValue, me: MemberValue) -> bool:
    """Whether the request is still there, and no acknowledgement depends on this disk."""
    record = snapshot.record
    if record is None or snapshot.request != request:
        return False
    return request.force or me.member not in record.in_sync

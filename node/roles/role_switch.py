"""One role in place of another while the node runs: what the services hold is this switch.

The switch is one assignment. A caller that asks for the epoch afterwards hears of the new role, so
the first step of a demotion is to set a role without an epoch: nothing is acknowledged from then
on, however long the rest takes. Puts that wait are settled at once as unknown (`on_change`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.protocol.frames import Refusal, encode_master_frame
from tandemlog_server.ha.protocol.replication_service import Context, ReplicationService

from ..error_status import not_sure
from .role import NodeRole

BEGIN_S = 1.0


class RoleSwitch:
    """A NodeRole that passes everything on to the present one. Any thread asks, the loop sets."""

    def __init__(self, first: NodeRole) -> None:
        self.current = first
        self.on_change: Callable[[], None] = _nothing

    def set(self, role: NodeRole) -> None:
        self.current = role
        self.on_change()

    def epoch(self) -> int | None:
        return self.current.epoch()

    def leased_epoch(self) -> int | None:
        return self.current.leased_epoch()

    async def leads(self) -> int:
        role = self.current
        epoch = await role.leads()
        if self.current is not role:
            raise not_sure()
        return epoch

    def admit(self, durability: int) -> None:
        self.current.admit(durability)

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return self.current.unconfirmed(end_offset)

    def require_master(self, what: str) -> None:
        self.current.require_master(what)

    def require_topics(self) -> None:
        self.current.require_topics()

    def require_group(self, group: str) -> None:
        self.current.require_group(group)

    async def admit_change(self) -> None:
        await self.current.admit_change()

    async def settle(self, table: str, version: int | None = None) -> None:
        await self.current.settle(table, version)

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return self.current.members()

    def alarms(self) -> Mapping[str, str]:
        return self.current.alarms()

    def put_fault(self) -> str:
        return self.current.put_fault()

    def read_fault(self) -> str:
        return self.current.read_fault()


class ReplicationSwitch:
    """The replication service of a node whose role changes.

    Slaves hear of an election at once, and may come before the term has begun: they wait here a
    moment. A refusal would cost them a pause before they come again, and clients with them.
    """

    def __init__(self, node_id: str) -> None:
        self.servicer = ReplicationService(self._replicate)
        self._current: ReplicationService | None = None
        self._begun = asyncio.Event()
        self._node_id = node_id

    def set(self, current: ReplicationService | None) -> None:
        self._current = current
        if current is None:
            self._begun.clear()
        else:
            self._begun.set()

    async def _replicate(self, requests: AsyncIterator[bytes], context: Context) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(BEGIN_S):
                await self._begun.wait()
        if self._current is not None:
            await self._current.replicate(requests, context)
            return
        refusal = Refusal(f"{self._node_id} is not the master now", retry=True)
        await context.write(encode_master_frame(refusal))


def _nothing() -> None:
    return

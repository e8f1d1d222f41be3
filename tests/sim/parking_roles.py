"""Roles of a node in the world of parked sends: of one that does not lead, and of a master in its
term, as MasterRole: it acknowledges while its lease lasts and enough replicas are in sync."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.error_status import RequestRefusedError, not_sure
from tandemlog_server.node.roles.role import NodeRole

if TYPE_CHECKING:
    from sim.parking_node import Node


class Alone(NodeRole):
    """Of a node that does not lead."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, "this node is not the master any more"

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return self._node.rows()

    def put_fault(self) -> str:
        return "no master"

    def read_fault(self) -> str:
        return ""


class Term(Alone):
    """Of a master, as MasterRole."""

    def __init__(self, node: "Node", epoch: int) -> None:
        super().__init__(node)
        self._epoch = epoch

    def _doubtful(self) -> bool:
        return self._node.stood_still() or not self._node.leased()

    def epoch(self) -> int | None:
        node = self._node
        if node.stood_still() or (node.in_force == {node.host} and not node.leased()):
            return None
        return self._epoch

    def leased_epoch(self) -> int | None:
        return None if self._doubtful() else self._epoch

    async def leads(self) -> int:
        if self._doubtful():
            raise not_sure()
        return self._epoch

    def admit(self, durability: int) -> None:
        node = self._node
        met = {node.host} | (node.members & node.held.keys())
        few = len(met) < node.world.min_in_sync and durability != broker_pb2.NO_WAIT
        if few or (node.in_force == {node.host} and not node.leased()):
            raise RequestRefusedError(common_pb2.NOT_IN_SYNC, "too few replicas")

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.FLUSH_SLAVE_TIMEOUT, "not confirmed"

    def require_master(self, what: str) -> None:
        return

    async def admit_change(self) -> None:
        return

    async def confirm_table(self, table: str, version: int | None = None) -> None:
        await asyncio.sleep(0.005)

    def put_fault(self) -> str:
        return ""

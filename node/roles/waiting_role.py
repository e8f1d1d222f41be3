"""The role of a node without a master: it serves reads of what is confirmed, and refuses puts."""

from collections.abc import Callable, Mapping, Sequence

from tandemlog.v1 import broker_pb2, common_pb2

from ..error_status import RequestRefusedError
from .role import OwnTables

Rows = Callable[[str], Sequence[common_pb2.NodeStatus]]


class WaitingRole(OwnTables):
    """`rows` gives the nodes that are known, with the reason in this node's own row."""

    def __init__(self, reason: str, rows: Rows) -> None:
        self.reason = reason
        self._rows = rows

    def epoch(self) -> int | None:
        return None

    def leased_epoch(self) -> int | None:
        return None

    async def leads(self) -> int:
        self.require_master("ask")
        raise AssertionError("a node without a term is no master")

    def admit(self, durability: int) -> None:
        self.require_master("send puts to")

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, f"this node is not the master any more: {self.reason}"

    def require_master(self, what: str) -> None:
        raise RequestRefusedError(
            common_pb2.NOT_MASTER,
            f"there is no master to {what.removesuffix(' to').removesuffix(' on')} now: "
            f"{self.reason}",
        )

    async def admit_change(self) -> None:
        self.require_master("change topics on")

    async def settle(self, table: str, version: int | None = None) -> None:
        self.require_master(f"change {table} on")

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return self._rows(self.reason)

    def alarms(self) -> Mapping[str, str]:
        return {}

    def put_fault(self) -> str:
        return f"no master: {self.reason}"

    def read_fault(self) -> str:
        return f"no master: {self.reason}"

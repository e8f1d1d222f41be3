"""The roles of a node without a term: it follows a master, or there is none."""

from collections.abc import Callable, Sequence

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.ha.slave.slave import ReplicationSlave

from ..error_status import RequestRefusedError
from .role import NodeRole


class SlaveRole(NodeRole):
    """Of a node that follows the master at this endpoint."""

    def __init__(self, replication: ReplicationSlave, master: str) -> None:
        self._replication = replication
        self._master = master

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, "this node is a slave"

    def no_master(self, what: str) -> RequestRefusedError:
        return RequestRefusedError(
            common_pb2.NOT_MASTER,
            f"this node is a slave; {what} the master, {self._master}",
            hint=self._master,
        )

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        """As the master told; before it has told anything, its address is all that is known."""
        rows = self._replication.members()
        if any(row.role == common_pb2.MASTER for row in rows):
            return rows
        master = common_pb2.NodeStatus(
            node_id=self._master,
            role=common_pb2.MASTER,
            endpoint=self._master,
            state="unreachable",
            detail="not known yet",
        )
        return [master, *rows]

    def put_fault(self) -> str:
        return "this node is a slave"

    def read_fault(self) -> str:
        state = self._replication.state
        return state.fault or ("no stream from the master yet" if not state.master_id else "")


class WaitingRole(NodeRole):
    """Between two terms, or without a master: reads of what is confirmed, no puts. `rows` gives the
    nodes that are known, with the reason in this node's own row."""

    def __init__(self, reason: str, rows: Callable[[str], Sequence[common_pb2.NodeStatus]]) -> None:
        self.reason = reason
        self._rows = rows

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, f"this node is not the master any more: {self.reason}"

    def no_master(self, what: str) -> RequestRefusedError:
        return RequestRefusedError(
            common_pb2.NOT_MASTER,
            f"there is no master to {what.removesuffix(' to').removesuffix(' on')} now: "
            f"{self.reason}",
        )

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return self._rows(self.reason)

    def put_fault(self) -> str:
        return f"no master: {self.reason}"

    def read_fault(self) -> str:
        return f"no master: {self.reason}"

"""Which rows of the table of nodes are of now, and which are only as they were heard last.

    this node leads                    its own row, and those of slaves that it hears
    this node follows a master         all that the master says
    the master does not answer, or     its own row, without a lag
    there is none

A node without a master keeps the rows that it was told, the master's among them: "in sync" there
is a memory.
"""

from collections.abc import Sequence

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.master.node_status import UNREACHABLE


def reached_master(members: Sequence[common_pb2.NodeStatus]) -> common_pb2.NodeStatus | None:
    """The row of the master that this node is, or hears; None if there is none."""
    return next((each for each in members if _leads(each) and _is_heard(each)), None)


def lost_master(members: Sequence[common_pb2.NodeStatus]) -> common_pb2.NodeStatus | None:
    """The row of the last master, if this node does not hear it and has no other one."""
    if reached_master(members) is not None:
        return None
    return next(filter(_leads, members), None)


def heard_now(members: Sequence[common_pb2.NodeStatus], own: str) -> frozenset[str]:
    """The nodes whose rows are of now; `own` is this node."""
    has_master = reached_master(members) is not None
    return frozenset(
        each.node_id for each in members if each.node_id == own or (has_master and _is_heard(each))
    )


def measured_lags(members: Sequence[common_pb2.NodeStatus], own: str) -> frozenset[str]:
    """The nodes whose lag is known: none without a master, which measures it."""
    return heard_now(members, own) if reached_master(members) is not None else frozenset()


def _leads(row: common_pb2.NodeStatus) -> bool:
    return row.role == common_pb2.MASTER


def _is_heard(row: common_pb2.NodeStatus) -> bool:
    return row.state != UNREACHABLE

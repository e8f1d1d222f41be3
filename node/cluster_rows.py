"""The nodes of the cluster as the coordinator's keys show them.

Without a master they are all that is known. With one, they show the nodes that it has not met in
its term: one that was lost together with the master before would otherwise be missing unnoticed.
"""

from collections.abc import Iterable, Sequence

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.election.snapshot import Snapshot
from tandemlog_server.ha.master.node_status import NO_MASTER, UNREACHABLE
from tandemlog_server.ha.protocol.versions import VERSION
from tandemlog_server.ha.state import HaState
from tandemlog_server.storage.message_store import MessageStore


def rows_without_master(
    snapshot: Snapshot, store: MessageStore, state: HaState, node_id: str, reason: str
) -> Sequence[common_pb2.NodeStatus]:
    """Every node of the roster: those with a lease are up. This node's row is fresh, and its
    detail is `reason`."""
    record = snapshot.record
    rows = []
    for name in sorted({*snapshot.roster, *snapshot.members, node_id}):
        if snapshot.removed(name) and name != node_id:
            continue
        row = _row_by_keys(snapshot, name)
        if (member := snapshot.members.get(name)) is not None:
            row.state, row.detail = NO_MASTER, member.obstacle
            row.in_sync = record is not None and member.member in record.in_sync
        if name == node_id:
            _fill_own(row, store, state, reason)
        rows.append(row)
    return rows


def with_roster(
    snapshot: Snapshot, rows: Sequence[common_pb2.NodeStatus], node_id: str
) -> Sequence[common_pb2.NodeStatus]:
    """`rows` of a role, with those of the roster that it does not know, and without those that
    were removed; `node_id` is this node."""
    present = [
        row
        for row in rows
        if row.node_id == node_id or row.alarm or row.in_sync or not snapshot.removed(row.node_id)
    ]
    missing = sorted({*snapshot.roster, *snapshot.members} - {row.node_id for row in rows})
    return present + [_unmet(snapshot, name) for name in missing if not snapshot.removed(name)]


def _unmet(snapshot: Snapshot, node_id: str) -> common_pb2.NodeStatus:
    row = _row_by_keys(snapshot, node_id)
    up = node_id in snapshot.members
    row.detail = "it does not follow the master" if up else "it is not up"
    return row


def _row_by_keys(snapshot: Snapshot, node_id: str) -> common_pb2.NodeStatus:
    """What the coordinator's keys say of a node, as one that this node does not reach."""
    row = common_pb2.NodeStatus(node_id=node_id, role=common_pb2.SLAVE, state=UNREACHABLE)
    if (member := snapshot.members.get(node_id)) is not None:
        row.endpoint, row.http_endpoint = member.endpoint, member.http_endpoint
        row.rocketmq_endpoint = member.rocketmq_endpoint
        row.rocketmq_grpc_endpoint = member.rocketmq_grpc_endpoint
        row.store_host, row.incarnation = member.store_host, member.incarnation
        row.epoch, row.wrote_offset = member.accepted_epoch, member.end_offset
    return row


def _fill_own(row: common_pb2.NodeStatus, store: MessageStore, state: HaState, reason: str) -> None:
    log = store.log
    row.state, row.detail = NO_MASTER, reason
    row.epoch, row.incarnation = state.accepted_epoch, state.incarnation
    row.min_offset, row.wrote_offset = log.min_offset, log.wrote.value
    row.flushed_offset, row.confirm_offset = log.flushed.value, store.confirmed.value
    row.reput_offset, row.commit_log_file_size = store.reputed.value, log.file_size
    row.version = VERSION


def with_own_state(
    rows: Sequence[common_pb2.NodeStatus], node_id: str, store: MessageStore, *, stopping: bool
) -> Sequence[common_pb2.NodeStatus]:
    """The same rows; that of this node with what its role does not know."""
    for row in rows:
        if row.node_id != node_id:
            continue
        if stopping:
            row.state = "stopping"
        elif store.failure is not None:
            row.state, row.detail = "read-only", str(store.failure)
        elif store.trouble is not None:
            row.detail = f"dispatch is waiting: {store.trouble}"
    return rows


def with_faults(
    rows: Sequence[common_pb2.NodeStatus], node_id: str, faults: Iterable[str]
) -> Sequence[common_pb2.NodeStatus]:
    """The same rows, this node's with these faults too; empty ones are none."""
    own = next((row for row in rows if row.node_id == node_id), None)
    if own is not None:
        own.faults.extend(each for each in faults if each and each not in own.faults)
    return rows

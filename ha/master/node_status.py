"""The nodes of the cluster as NodeStatus rows: what the master sees, and what a slave was told.

starting     no stream yet            in-sync      a member of the in-sync set
catching-up  on its way there         unreachable  nothing heard
read-only    its disk has failed      running      the master
refused      the master may lack acknowledged messages that it holds
no-master    a slave that has no stream from its master
"""

from collections.abc import Iterable, Sequence

from tandemlog.v1 import common_pb2

from ..config import HaConfig
from ..protocol.frames import Ack, Hello
from ..protocol.versions import VERSION
from ..store_port import StorePort
from .master_group import MasterGroup
from .sync_state_set import Progress

STARTING = "starting"
RUNNING = "running"
CATCHING_UP = "catching-up"
IN_SYNC = "in-sync"
UNREACHABLE = "unreachable"
READ_ONLY = "read-only"
REFUSED = "refused"
NO_MASTER = "no-master"


def own_status(
    store: StorePort, config: HaConfig, *, epoch: int, incarnation: str, uptime_s: float
) -> common_pb2.NodeStatus:
    """This node's row, without its role and state."""
    log = store.log
    return common_pb2.NodeStatus(
        node_id=config.node_id,
        endpoint=config.endpoint,
        http_endpoint=config.http_endpoint,
        rocketmq_endpoint=config.rocketmq_endpoint,
        rocketmq_grpc_endpoint=config.rocketmq_grpc_endpoint,
        epoch=epoch,
        incarnation=incarnation,
        min_offset=log.min_offset,
        wrote_offset=log.wrote.value,
        flushed_offset=log.flushed.value,
        confirm_offset=store.confirmed.value,
        reput_offset=store.reputed.value,
        store_host=config.store_host,
        commit_log_file_size=log.file_size,
        uptime_seconds=uptime_s,
        version=VERSION,
        faults=store.faults,
    )


def slave_rows(group: MasterGroup, now: float) -> list[common_pb2.NodeStatus]:
    """A row for every slave that is in the set, has been seen in this term, or has an alarm."""
    slaves = {member.node_id for member in group.set.members} | {*group.hellos, *group.alarmed}
    slaves.discard(group.me.node_id)
    return [_slave_row(group, node_id, now) for node_id in sorted(slaves)]


def _slave_row(group: MasterGroup, node_id: str, now: float) -> common_pb2.NodeStatus:
    each = group.progress.get(node_id)
    hello = group.hellos.get(node_id) or group.alarmed.get(node_id)
    session = group.sessions.get(node_id)
    ack = session.ack if session is not None else None
    member = any(other.node_id == node_id and group.holds_all(other) for other in group.set.members)
    state, detail = _state(group, node_id, each, member, now)
    row = common_pb2.NodeStatus(
        node_id=node_id,
        role=common_pb2.SLAVE,
        state=state,
        detail=detail,
        epoch=group.view.epoch,
        in_sync=member,
        alarm=group.alarms.get(node_id, ""),
    )
    if hello is not None:
        _fill_hello(row, hello)
    durable = _fill_ack(row, ack, hello, group)
    row.lag_bytes = max(0, group.view.end_offset - durable)
    behind = each.behind_s(now) if each is not None else None
    if row.lag_bytes or not (each is not None and each.connected):
        row.lag_seconds = now - group.set.started_at if behind is None else behind
    return row


def _state(
    group: MasterGroup, node_id: str, each: Progress | None, member: bool, now: float
) -> tuple[str, str]:
    if alarm := group.alarms.get(node_id, ""):
        return REFUSED, alarm
    if each is None or not each.connected:
        return UNREACHABLE, "no stream from this slave"
    silent = now - each.heard_at
    if silent * 1000 > group.config.dead_after_ms:
        return UNREACHABLE, f"no frame received for {silent:.1f} s"
    if each.fault:
        return READ_ONLY, each.fault
    detail = ""
    if group.tracker.durable(each.member) is None:
        detail = "preparing: its log is compared with the master's and truncated where they differ"
    return (IN_SYNC, detail) if member else (CATCHING_UP, detail or "not caught up yet")


def _fill_hello(row: common_pb2.NodeStatus, hello: Hello) -> None:
    row.endpoint = hello.endpoint
    row.http_endpoint = hello.http_endpoint
    row.rocketmq_endpoint = hello.rocketmq_endpoint
    row.rocketmq_grpc_endpoint = hello.rocketmq_grpc_endpoint
    row.incarnation = hello.incarnation
    row.min_offset = hello.min_offset
    row.store_host = hello.store_host
    row.commit_log_file_size = hello.file_size
    row.version = hello.build.named


def _fill_ack(
    row: common_pb2.NodeStatus, ack: Ack | None, hello: Hello | None, group: MasterGroup
) -> int:
    """What the slave said last of its positions; its durable offset."""
    if ack is None:
        return hello.max_offset if hello is not None else 0
    row.wrote_offset = ack.received
    row.flushed_offset = ack.durable
    row.confirm_offset = min(group.view.confirm, ack.durable)
    row.reput_offset = ack.reput
    return ack.durable


def merged(
    masters: Sequence[common_pb2.NodeStatus], own: common_pb2.NodeStatus, lost: str
) -> list[common_pb2.NodeStatus]:
    """A slave's view: the master's rows, with the slave's own row as it is now. `lost` says why
    there is no master."""
    rows = []
    for row in masters:
        if row.node_id == own.node_id:
            continue
        copy = common_pb2.NodeStatus()
        copy.CopyFrom(row)
        if lost and copy.role == common_pb2.MASTER:
            copy.state, copy.detail = UNREACHABLE, lost
        rows.append(copy)
    mine = row_of(masters, own.node_id)
    if mine is not None:
        own.in_sync = mine.in_sync and not lost
        own.lag_bytes, own.lag_seconds = mine.lag_bytes, mine.lag_seconds
    return [*rows, own]


def row_of(rows: Iterable[common_pb2.NodeStatus], node_id: str) -> common_pb2.NodeStatus | None:
    """The row of `node_id`; None if it is not among them."""
    return next((row for row in rows if row.node_id == node_id), None)

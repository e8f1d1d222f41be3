"""The cluster as its nodes describe it: who is there, who is master, how far behind the rest is.

Each node returns its own view. A node's report about itself counts most; about another node the
newest epoch counts, and the master's report before a slave's. All of this is pure.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from ..errors import InvalidArgumentError
from ..v1 import admin_pb2, common_pb2
from .belief import (
    Answers,
    ahead,
    believed_origin,
    claim,
    counted_epoch,
    fits,
    origin_of,
    why_not_believed,
    why_not_used,
)

WAY_OUT = "; if a node is just starting, try again soon; else name the endpoint of another node"
AT = "@"
"""Between id and endpoint of a stranger with the id of a member; no id contains it."""
SILENT_VERSION = "0.1 or older"
"""Of a node that answers and does not say its version."""


class ReadFrom(Enum):
    """Which nodes serve reads."""

    MASTER = "master"
    SLAVE = "slave"
    ANY = "any"

    @classmethod
    def _missing_(cls, value: object) -> "ReadFrom":
        raise InvalidArgumentError(
            f"read_from {value!r}: it must be one of {', '.join(each.value for each in cls)}",
            field="read_from",
        )


@dataclass(frozen=True, slots=True)
class CoordinatorInfo:
    """The coordinator as one node sees it. `product` is "etcd", "embedded", or empty where the
    node does not know yet; `age_seconds`, since it last heard from it, is -1 for never; `revision`
    is that of its view; `paused`: no node takes over by itself; `cluster_uuid` is the cluster that
    the node obeys, empty for none yet; `epoch` that of the cluster's record in its view, 0 where
    it is not known; `accepted_age_s`, since the coordinator last accepted a change of this node,
    is -1 for never and None where the node does not say; `refusal` why it accepted none since."""

    endpoints: tuple[str, ...]
    product: str
    revision: int
    age_seconds: float
    paused: bool
    cluster_uuid: str = ""
    epoch: int = 0
    accepted_age_s: float | None = None
    refusal: str = ""

    @property
    def is_embedded(self) -> bool:
        return self.product == "embedded"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node. `node_id` is `n0@host:port` for a stranger at that endpoint that has the id of the
    cluster's own n0, which is somewhere else. Offsets are bytes of the commit log; `reachable`: it
    answered by itself; `alarm`: the master may lack acknowledged messages that this node holds, and
    what to do; `version`: of its program, empty where that is not known; `contradiction`: why this
    node cannot belong to the cluster as the others describe it (a second master, an epoch that the
    coordinator never gave), and what to do; `coordinator` as this node sees it, if it answered and
    the cluster elects; `faults`: what is wrong with it and stops nothing; `rocketmq_endpoint`
    and `rocketmq_grpc_endpoint`: where RocketMQ's clients reach it, by remoting and by the API of
    5.x; empty where they do not."""

    node_id: str
    role: str
    endpoint: str
    http_endpoint: str
    state: str
    epoch: int
    in_sync: bool
    min_offset: int
    wrote_offset: int
    flushed_offset: int
    confirm_offset: int
    reput_offset: int
    lag_bytes: int
    lag_seconds: float
    detail: str
    store_host: str
    incarnation: str = ""
    commit_log_file_size: int = 0
    uptime_seconds: float = 0.0
    alarm: str = ""
    reachable: bool = False
    version: str = ""
    contradiction: str = ""
    coordinator: CoordinatorInfo | None = None
    faults: tuple[str, ...] = ()
    rocketmq_endpoint: str = ""
    rocketmq_grpc_endpoint: str = ""

    @property
    def is_master(self) -> bool:
        return self.role == "master"

    @property
    def is_broker(self) -> bool:
        """Whether it is a RocketMQ broker that follows the master: no node, so it is never asked
        itself."""
        return self.node_id.startswith("rocketmq:")


@dataclass(frozen=True, slots=True)
class Topology:
    """All known nodes, and the cluster's settings as its master (else any node) tells them.
    `asked` are endpoints, `unanswered` says of those that gave no answer why, if that is known.
    `newest_epoch` is the highest that a node of this cluster has told since the first picture,
    `newest_of` the node that told it.
    `coordinator` is None where roles are configured. `origin`: where the cluster gets its epochs
    (belief.py); empty where no node has answered yet.
    """

    nodes: tuple[NodeInfo, ...] = ()
    asked: tuple[str, ...] = ()
    cluster_id: str = ""
    flush: str = ""
    replication: str = ""
    min_in_sync: int = 0
    max_message_size: int = 4 << 20
    max_batch_size: int = 32 << 20
    master_id: str = ""
    unanswered: Mapping[str, str] = field(default_factory=dict)
    newest_epoch: int = 0
    newest_of: str = ""
    coordinator: CoordinatorInfo | None = None
    origin: str = ""

    @property
    def contradictions(self) -> dict[str, str]:
        """Node id -> why it cannot belong to this cluster as it is; readers do not ask it."""
        return {node.node_id: node.contradiction for node in self.nodes if node.contradiction}

    @property
    def alarms(self) -> dict[str, str]:
        """Node id -> alarm, of the nodes that have one."""
        return {node.node_id: node.alarm for node in self.nodes if node.alarm}

    @property
    def authority(self) -> NodeInfo | None:
        """The master, if no epoch above its own was ever told: it alone may say that something is
        nowhere in the cluster. One that was deposed and does not know it may not."""
        master = self.master
        return master if master is not None and master.epoch >= self.newest_epoch else None

    @property
    def master(self) -> NodeInfo | None:
        """The master, if it answered by itself."""
        for node in self.nodes:
            if node.node_id == self.master_id and node.reachable:
                return node
        return None

    def candidates(self, read_from: ReadFrom, *, prefer_slave: bool = False) -> list[NodeInfo]:
        """Whom to read from, best first: slaves by in-sync and lag; for ANY the master stands
        before them, or after them with `prefer_slave`. Reachable nodes come before the rest."""
        slaves = sorted(
            (
                node
                for node in self.nodes
                if not node.is_master and node.endpoint and not node.contradiction
            ),
            key=lambda node: (not node.reachable, not node.in_sync, node.lag_bytes, node.node_id),
        )
        master = self.master
        masters = [master] if master is not None else []
        if read_from is ReadFrom.MASTER:
            return masters
        if read_from is ReadFrom.SLAVE:
            return slaves
        return slaves + masters if prefer_slave else masters + slaves

    def asked_text(self) -> str:
        """Which nodes were asked, with the results, for error messages. If none responded, it
        suggests naming another node, because the client finds the others only through a live
        one."""
        states = {
            node.endpoint: node.contradiction or node.state or node.role
            for node in self.nodes
            if node.reachable
        }
        way_out = "" if states else WAY_OUT
        states = {**self.unanswered, **states}
        return (
            ", ".join(f"{name} ({states.get(name, 'no answer')})" for name in self.asked) + way_out
        )


def merge_answers(
    answers: Answers,
    asked: tuple[str, ...],
    previous: Topology,
    unanswered: Mapping[str, str] | None = None,
    given: Collection[str] | None = None,
) -> Topology:
    """The picture from the nodes' answers by the endpoint that was asked; `unanswered` says why an
    endpoint gave none, `given` which were not only named by the answers (None: all)."""
    reasons = dict(unanswered or {})
    node_ids = [_own_id(node.node_id) for node in previous.nodes]
    origin = believed_origin(answers, previous.origin, node_ids, given)
    believed = {at: each for at, each in answers.items() if fits(origin_of(each), origin)}
    reached = _reached(believed, previous)
    used = {at: each for at, each in believed.items() if reached[each.answered_by] == at}
    nodes, claims = _members(used, reached)
    master_id = max(claims)[1] if claims else ""
    speaker = _speaker(used, master_id)
    if speaker is None:
        nodes = {
            node.node_id: replace(node, reachable=False)
            for node in previous.nodes
            if node.node_id == _own_id(node.node_id)
        }
        nodes.update(_strangers(answers, used, origin, nodes))
        return replace(
            previous,
            nodes=tuple(nodes[node_id] for node_id in sorted(nodes)),
            asked=asked,
            master_id="",
            unanswered=reasons,
        )
    last_given = max(each.coordinator.epoch for each in believed.values())
    for answer in used.values():
        name = answer.answered_by
        if name in nodes and (text := ahead(answer, last_given) or _deposed(name, claims)):
            nodes[name] = replace(nodes[name], contradiction=text)
    nodes.update(_strangers(answers, used, origin, nodes))
    newest = max(
        ((counted_epoch(each), each.answered_by) for each in believed.values()), default=(0, "")
    )
    if previous.origin in ("", origin) and not _counts_anew(previous, speaker, master_id):
        newest = max(newest, (previous.newest_epoch, previous.newest_of))
    return Topology(
        nodes=tuple(nodes[node_id] for node_id in sorted(nodes)),
        asked=asked,
        cluster_id=speaker.cluster_id,
        flush=speaker.flush,
        replication=speaker.replication,
        min_in_sync=speaker.min_in_sync,
        max_message_size=speaker.max_message_size or 4 << 20,
        max_batch_size=speaker.max_batch_size or 32 << 20,
        master_id=master_id,
        unanswered=reasons,
        newest_epoch=newest[0],
        newest_of=newest[1],
        coordinator=_coordinator(speaker),
        origin=origin,
    )


def _members(
    used: Answers, reached: Mapping[str, str]
) -> tuple[dict[str, NodeInfo], list[tuple[int, str]]]:
    """The cluster's own nodes by id, and which of them says in which epoch that it leads."""
    own: dict[str, NodeInfo] = {}
    reports: dict[str, tuple[tuple[int, bool], NodeInfo]] = {}
    claims: list[tuple[int, str]] = []
    for answer in used.values():
        master_speaks = bool(answer.master_id) and answer.answered_by == answer.master_id
        for status in answer.nodes:
            endpoint = reached.get(status.node_id, status.endpoint)
            info = _info(status, endpoint, reachable=status.node_id in reached)
            if status.node_id == answer.answered_by:
                info = own[status.node_id] = replace(info, coordinator=_coordinator(answer))
                if master_speaks:
                    claims.append((status.epoch, status.node_id))
            rank = (status.epoch, master_speaks)
            if status.node_id not in reports or rank > reports[status.node_id][0]:
                reports[status.node_id] = (rank, info)
    nodes = {node_id: _both(own.get(node_id), info) for node_id, (_, info) in reports.items()}
    return nodes, claims


def _counts_anew(
    previous: Topology, speaker: admin_pb2.DescribeClusterResponse, master_id: str
) -> bool:
    """Another cluster at the same endpoints counts from its own beginning. So does a master by
    configuration whose store was restored or replaced: each of its starts is a new epoch, so one
    that names a lower one than before has another store."""
    if previous.cluster_id not in ("", speaker.cluster_id):
        return True
    return not speaker.HasField("coordinator") and previous.newest_of == master_id != ""


def _strangers(
    answers: Answers, used: Answers, origin: str, members: Mapping[str, NodeInfo]
) -> dict[str, NodeInfo]:
    """The nodes whose answers describe no part of this cluster, each as it describes itself, by the
    id under which it is shown. `members` are the cluster's own nodes, `used` their answers. A
    member that answered under several endpoints is not a stranger; a stranger that did so is shown
    once."""
    strangers: dict[str, NodeInfo] = {}
    seen = list(used.values())
    for endpoint, answer in sorted(answers.items()):
        name, itself = answer.answered_by, _itself(answer)
        if itself is None or any(_is_same(answer, each) for each in seen):
            continue
        seen.append(answer)
        member = members.get(name)
        same_place = member is None or member.endpoint in (endpoint, itself.endpoint)
        if same_place and name not in strangers and not (member and member.reachable):
            shown, member_at = name, ""
        else:
            shown, member_at = f"{name}{AT}{endpoint}", member.endpoint if member else ""
        copy = fits(origin_of(answer), origin)
        strangers[shown] = replace(
            _info(itself, endpoint, reachable=True),
            node_id=shown,
            in_sync=False,
            contradiction=(
                why_not_used(answer, member_at)
                if copy
                else why_not_believed(answer, origin, member_at)
            ),
        )
    return strangers


def _is_same(
    one: admin_pb2.DescribeClusterResponse, other: admin_pb2.DescribeClusterResponse
) -> bool:
    """Whether both are answers of one process, under whatever endpoint it was asked."""
    rows = _itself(one), _itself(other)
    return (
        one.answered_by == other.answered_by
        and (rows[0] and rows[0].endpoint) == (rows[1] and rows[1].endpoint)
        and fits(origin_of(one), origin_of(other))
    )


def _itself(answer: admin_pb2.DescribeClusterResponse) -> common_pb2.NodeStatus | None:
    return next((row for row in answer.nodes if row.node_id == answer.answered_by), None)


def _own_id(shown: str) -> str:
    """The id that a node has given itself."""
    return shown.partition(AT)[0]


def _deposed(node_id: str, claims: list[tuple[int, str]]) -> str:
    """Of two masters of one cluster the one with the lower epoch was deposed, and has not heard."""
    epochs = {name: epoch for epoch, name in claims}
    epoch, leader = max(claims, default=(0, ""))
    if node_id not in epochs or node_id == leader:
        return ""
    return (
        f"it says that it is the master, in epoch {epochs[node_id]}, but {leader} leads epoch "
        f"{epoch}: if it continues to say so, it does not reach the coordinator: look at its "
        "network"
    )


def coordinator_of(status: admin_pb2.CoordinatorStatus) -> CoordinatorInfo:
    return CoordinatorInfo(
        tuple(status.endpoints),
        status.product,
        status.revision,
        status.age_seconds,
        status.paused,
        status.cluster_uuid,
        status.epoch,
        status.accepted_age_seconds if status.HasField("accepted_age_seconds") else None,
        status.refusal,
    )


def _coordinator(answer: admin_pb2.DescribeClusterResponse) -> CoordinatorInfo | None:
    return coordinator_of(answer.coordinator) if answer.HasField("coordinator") else None


def _reached(believed: Answers, previous: Topology) -> dict[str, str]:
    """Node id -> the endpoint under which it is used: of two that say that they lead under one id
    that of the later epoch. One that answered under several keeps the one that it had."""
    before = {node.node_id: node.endpoint for node in previous.nodes}
    ranked: dict[str, tuple[tuple[int, bool], str]] = {}
    for endpoint, answer in believed.items():
        node_id = answer.answered_by
        rank = (claim(answer), endpoint == before.get(node_id))
        if node_id not in ranked or rank > ranked[node_id][0]:
            ranked[node_id] = rank, endpoint
    return {node_id: endpoint for node_id, (_, endpoint) in ranked.items()}


def _both(own: NodeInfo | None, told: NodeInfo) -> NodeInfo:
    """A node's own report, but whether it is in sync, and its lag, come from the master."""
    if own is None or own is told:
        return told
    if own.is_master:
        return own
    return replace(
        own,
        in_sync=told.in_sync,
        lag_bytes=max(own.lag_bytes, told.lag_bytes),
        state=told.state if told.alarm else own.state,
        alarm=told.alarm,
    )


def _speaker(answers: Answers, master_id: str) -> admin_pb2.DescribeClusterResponse | None:
    for answer in answers.values():
        if answer.answered_by == master_id:
            return answer
    return next(iter(answers.values()), None)


_ROLES: dict[int, str] = {common_pb2.MASTER: "master", common_pb2.SLAVE: "slave"}


def _info(status: common_pb2.NodeStatus, endpoint: str, *, reachable: bool) -> NodeInfo:
    return NodeInfo(
        node_id=status.node_id,
        role=_ROLES.get(status.role, "unknown"),
        endpoint=endpoint,
        http_endpoint=status.http_endpoint,
        rocketmq_endpoint=status.rocketmq_endpoint,
        rocketmq_grpc_endpoint=status.rocketmq_grpc_endpoint,
        state=status.state,
        epoch=status.epoch,
        in_sync=status.in_sync,
        min_offset=status.min_offset,
        wrote_offset=status.wrote_offset,
        flushed_offset=status.flushed_offset,
        confirm_offset=status.confirm_offset,
        reput_offset=status.reput_offset,
        lag_bytes=status.lag_bytes,
        lag_seconds=status.lag_seconds,
        detail=status.detail,
        store_host=status.store_host,
        incarnation=status.incarnation,
        commit_log_file_size=status.commit_log_file_size,
        uptime_seconds=status.uptime_seconds,
        alarm=status.alarm,
        reachable=reachable,
        version=status.version or (SILENT_VERSION if reachable else ""),
        faults=tuple(status.faults),
    )

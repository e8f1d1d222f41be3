"""What a cluster that elects its master tells operators: values made of the nodes' answers."""

from dataclasses import dataclass
from enum import Enum

from ..v1 import admin_pb2
from .topology import CoordinatorInfo, coordinator_of


class ClusterChange(Enum):
    """What can be asked for."""

    SWITCHOVER = admin_pb2.SWITCHOVER
    FAILOVER = admin_pb2.FAILOVER
    PAUSE = admin_pb2.PAUSE
    RESUME = admin_pb2.RESUME
    ADD_MEMBER = admin_pb2.ADD_MEMBER
    REMOVE_MEMBER = admin_pb2.REMOVE_MEMBER
    WITHDRAW = admin_pb2.WITHDRAW
    REINIT = admin_pb2.REINIT


@dataclass(frozen=True, slots=True)
class RosterNode:
    """A node that belongs to the cluster, or did. `up`: its lease holds; the fields behind it are
    known only while it does."""

    node_id: str
    removed: bool
    starts: int
    in_sync: bool
    why_not_in_sync: str
    up: bool
    endpoint: str
    http_endpoint: str
    incarnation: str
    last_epoch: int
    end_offset: int
    priority: int
    obstacle: str


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A switch, or a resync, that was asked for. `outcome` says why it was given up, empty while it
    waits."""

    kind: str
    target: str
    request_id: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Coordination:
    """The cluster's keys at one revision, as `answered_by` has read them. `epoch` is 0 before the
    first election; `leader_present`: the leader's lease holds; `in_sync` are nodes with the
    incarnations of their disks; `unclean_epoch` is the newest epoch that may have begun without
    acknowledged messages, 0 for none, and `lost_bytes` as in Term."""

    answered_by: str
    coordinator: CoordinatorInfo
    cluster_uuid: str
    epoch: int
    leader_id: str
    leader_present: bool
    reason: str
    unclean_epoch: int
    in_sync: tuple[tuple[str, str], ...]
    roster: tuple[RosterNode, ...]
    request: PendingRequest | None
    lost_bytes: int | None = None

    def node(self, node_id: str) -> RosterNode | None:
        return next((each for each in self.roster if each.node_id == node_id), None)


@dataclass(frozen=True, slots=True)
class Term:
    """How one epoch began. `began_ms` is the leader's wall clock; `unclean`: it may have begun
    without acknowledged messages, at most `lost_bytes` of them, None while that is not known;
    `end_offset` is where the leader's log ended."""

    epoch: int
    leader: str
    reason: str
    began_ms: int
    unclean: bool
    end_offset: int
    lost_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class History:
    """The terms that the coordinator keeps, the oldest first."""

    answered_by: str
    revision: int
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """`node_id` is the target; `changed` is False where nothing was to be done, or for a dry
    run."""

    answered_by: str
    revision: int
    node_id: str
    changed: bool


def coordination_of(answer: admin_pb2.CoordinationResponse) -> Coordination:
    request = answer.request if answer.HasField("request") else None
    return Coordination(
        answered_by=answer.answered_by,
        coordinator=coordinator_of(answer.coordinator),
        cluster_uuid=answer.cluster_uuid,
        epoch=answer.epoch,
        leader_id=answer.leader_id,
        leader_present=answer.leader_present,
        reason=answer.reason,
        unclean_epoch=answer.unclean_epoch,
        lost_bytes=answer.lost_bytes if answer.HasField("lost_bytes") else None,
        in_sync=tuple((each.node_id, each.incarnation) for each in answer.in_sync),
        roster=tuple(_roster_node(each) for each in answer.roster),
        request=None
        if request is None
        else PendingRequest(request.kind, request.target, request.request_id, request.outcome),
    )


def history_of(answer: admin_pb2.HistoryResponse) -> History:
    return History(
        answer.answered_by,
        answer.revision,
        tuple(
            Term(
                each.epoch,
                each.leader,
                each.reason,
                each.began_ms,
                each.unclean,
                each.end_offset,
                each.lost_bytes if each.HasField("lost_bytes") else None,
            )
            for each in answer.terms
        ),
    )


def changed_of(answer: admin_pb2.ChangeClusterResponse) -> Changed:
    return Changed(answer.answered_by, answer.revision, answer.node_id, answer.changed)


def _roster_node(entry: admin_pb2.RosterEntry) -> RosterNode:
    return RosterNode(
        node_id=entry.node_id,
        removed=entry.removed,
        starts=entry.starts,
        in_sync=entry.in_sync,
        why_not_in_sync=entry.why_not_in_sync,
        up=entry.up,
        endpoint=entry.endpoint,
        http_endpoint=entry.http_endpoint,
        incarnation=entry.incarnation,
        last_epoch=entry.last_epoch,
        end_offset=entry.end_offset,
        priority=entry.priority,
        obstacle=entry.obstacle,
    )

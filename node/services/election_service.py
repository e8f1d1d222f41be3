"""What a node of an elected cluster tells operators, and does for them, as messages of Admin.

    Coordination, History, ChangeCluster   read or change the coordinator, now
    status, cluster, epochs, numbers       what the agent knows already: for lists, HTTP, metrics

Errors are those of ha.election.requests and of the coordinator; error_status.py translates them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from google.protobuf.message import Message

from tandemlog.v1 import admin_pb2, common_pb2
from tandemlog_server.ha.coordinator.coordinator_errors import CoordinatorUnavailableError
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.election.key_values import NOT_KNOWN
from tandemlog_server.ha.election.requests import Action, Change, ClusterRequests, why_not_in_sync
from tandemlog_server.ha.election.snapshot import Snapshot

from ..error_status import RequestRefusedError
from ..roles.elected_roles import ElectedRoles, ElectionNumbers

CONFIGURED = (
    "this cluster has no coordinator: its roles are configured (role and master in each node's "
    "file), and an operator changes them there"
)

_ACTIONS: Mapping[int, Action] = {
    admin_pb2.SWITCHOVER: Action.SWITCHOVER,
    admin_pb2.FAILOVER: Action.FAILOVER,
    admin_pb2.PAUSE: Action.PAUSE,
    admin_pb2.RESUME: Action.RESUME,
    admin_pb2.ADD_MEMBER: Action.ADD_MEMBER,
    admin_pb2.REMOVE_MEMBER: Action.REMOVE_MEMBER,
    admin_pb2.WITHDRAW: Action.WITHDRAW,
    admin_pb2.REINIT: Action.REINIT,
}
_NAMES_A_NODE = (Action.FAILOVER, Action.ADD_MEMBER, Action.REMOVE_MEMBER, Action.REINIT)
_HAS_REQUEST_ID = (Action.SWITCHOVER, Action.FAILOVER, Action.WITHDRAW, Action.REINIT)
MAX_NAME = 256
PRODUCT_S = 2.0


class ElectionService:
    """See the module. `product` asks the coordinator which one it is; `now` is the clock of the
    agent."""

    def __init__(
        self,
        node_id: str,
        endpoints: Sequence[str],
        agent: ElectionAgent,
        roles: ElectedRoles,
        requests: ClusterRequests,
        *,
        product: Callable[[], Awaitable[str]],
        now: Callable[[], float],
    ) -> None:
        self._node_id = node_id
        self._endpoints = endpoints
        self._agent = agent
        self._roles = roles
        self._requests = requests
        self._ask_product = product
        self._now = now
        self._product = ""

    # ---- from the coordinator, now

    async def coordination(self) -> admin_pb2.CoordinationResponse:
        """All keys at one revision."""
        snapshot = (await self._requests.read()).snapshot
        if snapshot.fault:
            raise RequestRefusedError(common_pb2.INTERNAL, snapshot.fault)
        return self._view(snapshot, age_s=0.0)

    async def history(self) -> admin_pb2.HistoryResponse:
        """Every term that the coordinator keeps."""
        snapshot = (await self._requests.read()).snapshot
        return admin_pb2.HistoryResponse(
            answered_by=self._node_id, revision=snapshot.revision, terms=_terms(snapshot)
        )

    async def change(
        self, request: admin_pb2.ChangeClusterRequest
    ) -> admin_pb2.ChangeClusterResponse:
        """Do what is asked for, or begin it."""
        done = await self._requests.change(_change(request))
        self._agent.poll_now(f"an operator asked for: {_ACTIONS[request.action].value}")
        return admin_pb2.ChangeClusterResponse(
            answered_by=self._node_id,
            revision=done.revision,
            node_id=done.node_id,
            changed=done.changed,
        )

    async def learn_product(self) -> None:
        """Ask which coordinator it is, until it answers."""
        while not self._product:
            with suppress(CoordinatorUnavailableError):
                self._product = await self._ask_product()
                return
            await asyncio.sleep(PRODUCT_S)

    # ---- what the agent knows; cheap, and of no network

    def status(self) -> admin_pb2.CoordinatorStatus:
        return self._status(self._agent.snapshot, self._age_s())

    def cluster(self) -> Mapping[str, object]:
        """For /cluster: `coordination` as old as its age says."""
        view = self._view(self._agent.snapshot, self._age_s())
        status = view.coordinator
        return {
            "coordinator": list(status.endpoints),
            **_fields(status, "product", "revision"),
            "age_seconds": round(status.age_seconds, 3),
            "accepted_age_seconds": round(status.accepted_age_seconds, 3),
            **_fields(status, "refusal", "paused"),
            "epoch": view.epoch,
            "leader": view.leader_id,
            **_fields(view, "leader_present", "reason", "unclean_epoch"),
            "lost_bytes": view.lost_bytes if view.HasField("lost_bytes") else None,
            "in_sync": [
                {"node": each.node_id, "incarnation": each.incarnation} for each in view.in_sync
            ],
            "roster": [
                {
                    "node": each.node_id,
                    **_fields(each, "up", "removed", "in_sync", "why_not_in_sync", "endpoint"),
                }
                for each in view.roster
            ],
            "request": _fields(view.request, "kind", "target", "request_id", "outcome")
            if view.HasField("request")
            else None,
        }

    def epochs(self) -> Mapping[str, object]:
        """For /history."""
        snapshot = self._agent.snapshot
        return {
            "revision": snapshot.revision,
            "age_seconds": round(self._age_s(), 3),
            "terms": [
                {
                    **_fields(each, "epoch", "leader", "reason", "began_ms"),
                    **_fields(each, "unclean", "end_offset"),
                    "lost_bytes": each.lost_bytes if each.HasField("lost_bytes") else None,
                }
                for each in _terms(snapshot)
            ],
        }

    def numbers(self) -> ElectionNumbers:
        agent, record = self._agent, self._agent.snapshot.record
        return ElectionNumbers(
            lease_remaining_s=(
                max(0.0, agent.lease.remaining_s(self._now())) if agent.leading else 0.0
            ),
            coordinator_age_s=self._age_s(),
            accepted_age_s=self._accepted_age_s(),
            record_epoch=0 if record is None else record.epoch,
            paused=agent.snapshot.settings.paused,
            terms_won=self._roles.terms_won,
            incarnation_changes=self._roles.incarnation_changes,
            unclean_epoch=0 if record is None else record.unclean_epoch,
        )

    def _age_s(self) -> float:
        heard = self._agent.heard_at
        return -1.0 if heard is None else max(0.0, self._now() - heard)

    def _accepted_age_s(self) -> float:
        accepted = self._agent.accepted_at
        return -1.0 if accepted is None else max(0.0, self._now() - accepted)

    def _status(self, snapshot: Snapshot, age_s: float) -> admin_pb2.CoordinatorStatus:
        return admin_pb2.CoordinatorStatus(
            endpoints=self._endpoints,
            product=self._product,
            revision=snapshot.revision,
            age_seconds=age_s,
            paused=snapshot.settings.paused,
            cluster_uuid=self._agent.cluster_uuid,
            epoch=0 if snapshot.record is None else snapshot.record.epoch,
            accepted_age_seconds=self._accepted_age_s(),
            refusal=self._agent.refusal,
        )

    def _view(self, snapshot: Snapshot, age_s: float) -> admin_pb2.CoordinationResponse:
        answer = admin_pb2.CoordinationResponse(
            answered_by=self._node_id,
            coordinator=self._status(snapshot, age_s),
            cluster_uuid=snapshot.uuid,
            leader_present=snapshot.leader is not None,
            roster=[
                _entry(snapshot, node_id)
                for node_id in sorted({*snapshot.roster, *snapshot.members})
            ],
        )
        if (record := snapshot.record) is not None:
            answer.epoch, answer.leader_id = record.epoch, record.leader.node_id
            answer.reason, answer.unclean_epoch = record.reason, record.unclean_epoch
            for term in snapshot.history:
                if term.epoch == record.unclean_epoch and term.lost_bytes != NOT_KNOWN:
                    answer.lost_bytes = term.lost_bytes
            answer.in_sync.extend(
                admin_pb2.InSyncMember(node_id=each.node_id, incarnation=each.incarnation)
                for each in sorted(record.in_sync)
            )
        if (request := snapshot.request) is not None:
            answer.request.CopyFrom(
                admin_pb2.PendingRequest(
                    kind=request.kind,
                    target=request.target,
                    request_id=request.request_id,
                    outcome=request.outcome,
                )
            )
        return answer


def _fields(message: Message, *names: str) -> dict[str, object]:
    return {name: getattr(message, name) for name in names}


def required(elections: ElectionService | None) -> ElectionService:
    """Raises RequestRefusedError on a node whose role is configured."""
    if elections is None:
        raise RequestRefusedError(common_pb2.INVALID_ARGUMENT, CONFIGURED, field="coordinator")
    return elections


def _change(request: admin_pb2.ChangeClusterRequest) -> Change:
    """Raises RequestRefusedError for a request that lacks something."""
    action = _ACTIONS.get(request.action)
    if action is None:
        raise _bad("action", f"there is no action {request.action}")
    if action in _NAMES_A_NODE and not request.node_id:
        raise _bad("node_id", f"{action.value} needs the name of a node")
    if action in _HAS_REQUEST_ID and not request.request_id:
        raise _bad("request_id", f"{action.value} needs a request id, which names its outcome")
    for name in ("node_id", "request_id"):
        if len(getattr(request, name)) > MAX_NAME:
            raise _bad(name, f"{name} may have at most {MAX_NAME} characters")
    return Change(
        action,
        request.node_id,
        request.request_id,
        request.epoch,
        force=request.force,
        dry_run=request.dry_run,
    )


def _bad(field: str, message: str) -> RequestRefusedError:
    return RequestRefusedError(common_pb2.INVALID_ARGUMENT, message, field=field)


def _entry(snapshot: Snapshot, node_id: str) -> admin_pb2.RosterEntry:
    counted, member = snapshot.roster.get(node_id), snapshot.members.get(node_id)
    why_not = why_not_in_sync(snapshot, node_id)
    entry = admin_pb2.RosterEntry(
        node_id=node_id,
        removed=snapshot.removed(node_id),
        starts=0 if counted is None else counted.starts,
        in_sync=not why_not,
        why_not_in_sync=why_not,
        up=member is not None,
    )
    if member is not None:
        entry.endpoint, entry.http_endpoint = member.endpoint, member.http_endpoint
        entry.incarnation, entry.obstacle = member.incarnation, member.obstacle
        entry.last_epoch, entry.end_offset = member.last_epoch, member.end_offset
        entry.priority = member.priority
    return entry


def _terms(snapshot: Snapshot) -> list[admin_pb2.Term]:
    return [
        admin_pb2.Term(
            epoch=each.epoch,
            leader=each.leader,
            reason=each.reason,
            began_ms=each.began_ms,
            unclean=each.unclean,
            end_offset=each.end_offset,
            lost_bytes=None if each.lost_bytes == NOT_KNOWN else each.lost_bytes,
        )
        for each in sorted(snapshot.history, key=lambda term: term.epoch)
    ]

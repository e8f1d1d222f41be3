"""The cluster as this node sees it: from memory, and without asking another node.

A page asks again as soon as it has its answer. It says what it has seen (`seen`), and the node
answers when a role, an epoch or a node's state is another one, or after a second.
"""

import asyncio
import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tandemlog.cluster.elections import ClusterChange
from tandemlog.v1 import common_pb2

from ..sampler import Sampler
from ..served_node import ServedNode
from ..standing import heard_now, lost_master, measured_lags, reached_master
from ..visit import Json, Needs, Place, Route, Visit

WAIT_S = 1.0
LOOK_S = 0.1
TERMS = 12
"""What the page shows of the history."""


class ClusterPage:
    """See the module."""

    def __init__(self, node: ServedNode, sampler: Sampler) -> None:
        self._node = node
        self._sampler = sampler

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/api/cluster", Needs.CALLER, self._cluster, place=Place.WAIT),
            Route("GET", "/api/cluster/rates", Needs.CALLER, self._rates),
            Route("POST", "/api/cluster/master", Needs.CHANGE, self._switch_master),
        )

    async def _cluster(self, visit: Visit) -> Json:
        """`heard` is false of a row that is only as this node heard it last. `master` is empty
        where none answers; `lost_master` is then the last one."""
        seen, own = visit.text("seen"), self._node.config.node_id
        until = time.monotonic() + WAIT_S
        members = self._node.members()
        while (mark := _mark(members)) == seen and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
            members = self._node.members()
        config, elections = self._node.config, self._node.membership.elections
        heard, measured = heard_now(members, own), measured_lags(members, own)
        master, lost = reached_master(members), lost_master(members)
        return {
            "seen": mark,
            "cluster_id": config.cluster_id,
            "answered_by": own,
            "master": "" if master is None else master.node_id,
            "lost_master": "" if lost is None else lost.node_id,
            "flush": config.store.flush.value,
            "replication": config.replication.mode.value,
            "min_in_sync": config.replication.min_in_sync,
            "disk": asdict(await self._sampler.disk()),
            "nodes": [
                {
                    **_row(each),
                    "heard": each.node_id in heard,
                    "lag_measured": each.node_id in measured,
                }
                for each in members
            ],
            "elections": None if elections is None else elections.cluster(),
            "terms": None if elections is None else _newest(elections.epochs()["terms"]),
        }

    async def _rates(self, visit: Visit) -> Json:
        coarse = visit.text("span") == "hours"
        return {"plots": self._sampler.history.read(time.monotonic(), coarse=coarse)}

    async def _switch_master(self, visit: Visit) -> Json:
        """Ask for `node` as the next master. The page shows it when it leads; `request_id` finds
        the request in `elections`."""
        target, request_id = visit.given("node"), uuid.uuid4().hex
        visit.confirmed(target)
        async with visit.clients.admin() as admin:
            await admin.change_cluster(ClusterChange.SWITCHOVER, target, request_id=request_id)
        return {"request_id": request_id}


def _mark(members: Sequence[common_pb2.NodeStatus]) -> str:
    """Of what a page must show at once."""
    rows = [(each.node_id, each.role, each.epoch, each.state, each.alarm) for each in members]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def _newest(terms: Any) -> Sequence[Mapping[str, Any]]:
    """The last of `terms`, which are in their order."""
    newest: Sequence[Mapping[str, Any]] = terms[-TERMS:]
    return newest


def _row(status: common_pb2.NodeStatus) -> Mapping[str, Any]:
    return {
        "node": status.node_id,
        "role": common_pb2.Role.Name(status.role).lower(),
        "endpoint": status.endpoint,
        "http_endpoint": status.http_endpoint,
        "state": status.state,
        "epoch": status.epoch,
        "in_sync": status.in_sync,
        "min_offset": status.min_offset,
        "wrote_offset": status.wrote_offset,
        "flushed_offset": status.flushed_offset,
        "confirm_offset": status.confirm_offset,
        "reput_offset": status.reput_offset,
        "lag_bytes": status.lag_bytes,
        "lag_seconds": round(status.lag_seconds, 3),
        "uptime_seconds": round(status.uptime_seconds),
        "detail": status.detail,
        "alarm": status.alarm,
        "faults": list(status.faults),
        "version": status.version,
    }

"""Which slaves RocketMQ's consumers may read from: those in sync whose door is known.

While no master is known, no node says who is in sync: then it is who was so last. A consumer that
reads from a slave must not be sent away at the death of the master.
"""

from collections.abc import Callable, Sequence

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.master.node_status import IN_SYNC
from tandemlog_server.rocketmq.clients.pull_requests import MASTER_ID

from ..cluster.cluster_nodes import ClusterNodes

LOOK_S = 0.05


class ClusterReaders:
    """See the module; the Readers of pull_methods.py. `members` gives the rows; `now` is the clock
    of the loop."""

    def __init__(
        self,
        nodes: ClusterNodes,
        members: Callable[[], Sequence[common_pb2.NodeStatus]],
        now: Callable[[], float],
    ) -> None:
        self._nodes = nodes
        self._members = members
        self._now = now
        self._looked_at = float("-inf")
        self._slaves: tuple[int, ...] = ()

    def own_id(self) -> int:
        """See Readers."""
        return MASTER_ID if self._nodes.leads() else self._nodes.number()

    def another_leads(self) -> bool:
        """See Readers."""
        if self._nodes.leads():
            return False
        return any(each.leads and each.up and each.address for each in self._nodes.nodes())

    def slaves(self) -> tuple[int, ...]:
        """See Readers. One look serves the pulls of a moment."""
        now = self._now()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            rows = self._members()
            if any(row.role == common_pb2.MASTER for row in rows):
                in_sync = {row.rocketmq_endpoint for row in rows if row.state == IN_SYNC} - {""}
                self._slaves = tuple(
                    sorted(
                        each.number
                        for each in self._nodes.nodes()
                        if each.address in in_sync and not each.leads
                    )
                )
        return self._slaves

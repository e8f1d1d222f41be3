"""From which nodes RocketMQ's consumers may read, by the numbers of their routes.

    slaves in sync whose door is known   each queue always from the same one
    the master, by its own number        while there are none: just after an election, above all

A consumer that reads from a slave does not notice the death of the master. It must not be sent
away then either: while no master is known, no node says who is in sync, and it is who was so last.
Nor is it ever sent to id 0: the route that a client has may be of the time before the election, and
0 in it is the node that is gone (rocketmq/clients/routes.py).
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
        self._master: int | None = None
        self._own = MASTER_ID

    def leads(self) -> bool:
        """See Readers."""
        return self._nodes.leads()

    def own(self) -> int:
        """See Readers. A node that is alone has a route without numbers."""
        self._look()
        return self._own

    def master(self) -> int | None:
        """See Readers."""
        self._look()
        return self._master

    def another_leads(self) -> bool:
        """See Readers."""
        if self._nodes.leads():
            return False
        return any(each.leads and each.up and each.address for each in self._nodes.nodes())

    def slaves(self) -> tuple[int, ...]:
        """See Readers."""
        self._look()
        return self._slaves

    def _look(self) -> None:
        """One look serves the pulls of a moment."""
        now = self._now()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        nodes, rows = self._nodes.nodes(), self._members()
        self._own = self._nodes.number() if len(nodes) > 1 else MASTER_ID
        self._master = next((each.number for each in nodes if each.leads and each.up), None)
        if any(row.role == common_pb2.MASTER for row in rows):
            in_sync = {row.rocketmq_endpoint for row in rows if row.state == IN_SYNC} - {""}
            self._slaves = tuple(
                sorted(each.number for each in nodes if each.address in in_sync and not each.leads)
            )

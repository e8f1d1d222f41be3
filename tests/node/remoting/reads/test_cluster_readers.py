"""Which slaves consumers may read from."""

from dataclasses import dataclass
from typing import Any

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.master.node_status import CATCHING_UP, IN_SYNC
from tandemlog_server.node.remoting.reads.cluster_readers import ClusterReaders
from tandemlog_server.rocketmq.clients.routes import RouteNode


@dataclass
class FewNodes:
    """Three nodes with the numbers 1 to 3, the first of which may lead."""

    leading: bool = True
    first_leads: bool = True
    lost: bool = False

    def leads(self) -> bool:
        return self.leading

    def number(self) -> int:
        return 1 if self.leading else 2

    def nodes(self) -> list[RouteNode]:
        first = 1 if self.first_leads else 0
        return [
            RouteNode(each, f"n{each}:1", leads=each == first, up=each != 1 or not self.lost)
            for each in (1, 2, 3)
        ]


def rows(*, master: bool = True, third: str = IN_SYNC) -> list[common_pb2.NodeStatus]:
    first = common_pb2.MASTER if master else common_pb2.SLAVE
    return [
        common_pb2.NodeStatus(rocketmq_endpoint="n1:1", role=first, state="running"),
        common_pb2.NodeStatus(rocketmq_endpoint="n2:1", role=common_pb2.SLAVE, state=IN_SYNC),
        common_pb2.NodeStatus(rocketmq_endpoint="n3:1", role=common_pb2.SLAVE, state=third),
    ]


def test_slaves_in_sync_are_kept_while_no_master_is_known() -> None:
    seen, now = [rows()], [0.0]
    nodes: Any = FewNodes()
    readers = ClusterReaders(nodes, lambda: seen[0], lambda: now[0])
    assert (readers.leads(), readers.own(), readers.master()) == (True, 1, 1)
    assert readers.slaves() == (2, 3)
    seen[0] = rows(third=CATCHING_UP)
    assert readers.slaves() == (2, 3)  # one look serves a moment
    now[0] = 1.0
    assert readers.slaves() == (2,)
    nodes.leading, nodes.lost = False, True
    seen[0], now[0] = rows(master=False), 2.0
    assert readers.slaves() == (2,)
    assert (readers.leads(), readers.own(), readers.master()) == (False, 2, None)


def test_another_node_leads_while_a_master_is_known_that_is_not_this_one() -> None:
    nodes: Any = FewNodes()
    readers = ClusterReaders(nodes, rows, lambda: 0.0)
    assert not readers.another_leads()
    nodes.leading = False
    assert readers.another_leads()
    nodes.first_leads = False
    assert not readers.another_leads()


def test_a_node_alone_is_broker_0() -> None:
    nodes: Any = FewNodes()
    nodes.nodes = lambda: [RouteNode(1, "n1:1", leads=True)]
    readers = ClusterReaders(nodes, lambda: rows()[:1], lambda: 0.0)
    assert (readers.own(), readers.slaves()) == (0, ())

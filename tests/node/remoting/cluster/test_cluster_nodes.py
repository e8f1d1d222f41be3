"""Who is in routes at the moments around an election."""

from typing import Any

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.master.node_status import IN_SYNC, UNREACHABLE
from tandemlog_server.node.remoting.cluster.cluster_nodes import AWAY_S, ClusterNodes
from tandemlog_server.rocketmq.clients.routes import BrokerNames


class Role:
    """What a node is now."""

    def __init__(self, epoch: int | None) -> None:
        self._epoch = epoch

    def epoch(self) -> int | None:
        return self._epoch


class Roles:
    """The role of this moment, as CurrentRole has it."""

    def __init__(self) -> None:
        self.role = Role(None)


def row(name: str, state: str, *, master: bool = False, known: bool = True) -> Any:
    return common_pb2.NodeStatus(
        node_id=name,
        endpoint=f"{name}:0" if known else "",
        rocketmq_endpoint=f"{name}:1" if known else "",
        role=common_pb2.MASTER if master else common_pb2.SLAVE,
        state=state,
    )


class Seen:
    """The nodes as n1 sees them, which was elected when n0 was killed."""

    def __init__(self) -> None:
        self.rows: list[Any] = [
            row("n0", "running", master=True),
            row("n1", IN_SYNC),
            row("n2", IN_SYNC),
        ]
        self.now, self.current = 0.0, Roles()
        current: Any = self.current
        self.nodes = ClusterNodes(
            BrokerNames("C", "b"),
            current,
            lambda: self.rows,
            node_id="n1",
            address="n1:1",
            founders=["n0", "n1", "n2"],
            now=lambda: self.now,
        )

    def elect(self) -> None:
        self.current.role = Role(2)
        self.rows = [
            row("n1", "running", master=True),
            row("n0", UNREACHABLE, known=False),
            row("n2", UNREACHABLE, known=False),
        ]

    def route(self) -> dict[int, str]:
        """By number, with the master as 0."""
        place = self.nodes.placement()
        return {**place.addresses, **place.numbers}


def test_a_slave_that_has_not_met_the_new_master_yet_is_in_its_routes() -> None:
    seen = Seen()
    assert seen.route() == {0: "n0:1", 1: "n1:1", 2: "n2:1", 3: "n0:1"}
    seen.now = 1.0
    seen.elect()
    assert seen.route() == {0: "n1:1", 1: "n1:1", 2: "n2:1", 3: "n2:1"}


def test_a_slave_that_does_not_come_is_not_kept_in_routes() -> None:
    seen = Seen()
    seen.route()
    seen.elect()
    seen.now = AWAY_S + 0.1
    assert set(seen.route().values()) == {"n1:1"}


def test_a_slave_knows_where_it_saw_the_one_that_was_elected() -> None:
    seen = Seen()
    seen.route()
    seen.now = 1.0
    master = common_pb2.NodeStatus(
        node_id="n2:0", endpoint="n2:0", role=common_pb2.MASTER, state=UNREACHABLE
    )
    seen.rows = [master, row("n1", IN_SYNC)]
    assert seen.nodes.master_address() == "n2:1"
    # that n2 is the master it cannot say yet, and so no slave has the number of n0
    assert seen.route() == {0: "n1:1", 1: "n1:1", 2: "n2:1", 3: "n0:1"}

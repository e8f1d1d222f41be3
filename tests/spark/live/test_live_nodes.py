import pytest

from tandemlog.cluster.node import Node
from tandemlog.cluster.topology import NodeInfo, ReadFrom, Topology
from tandemlog.errors import NoNodeError
from tandemlog.spark.live.nodes import NodeChoice, candidates


def node(name: str, role: str, *, reachable: bool = True, in_sync: bool = True) -> NodeInfo:
    return NodeInfo(
        node_id=name,
        role=role,
        endpoint=f"{name}:1",
        http_endpoint="",
        state="running",
        epoch=1,
        in_sync=in_sync,
        min_offset=0,
        wrote_offset=0,
        flushed_offset=0,
        confirm_offset=0,
        reput_offset=0,
        lag_bytes=0,
        lag_seconds=0.0,
        detail="",
        store_host="",
        reachable=reachable,
    )


def names(read_from: ReadFrom, number: int, *nodes: NodeInfo) -> list[str]:
    topology = Topology(nodes=nodes, master_id="m")
    return [each.node_id for each in candidates(topology, read_from, number)]


M, A, B = node("m", "master"), node("a", "slave"), node("b", "slave")


@pytest.mark.parametrize(
    ("read_from", "number", "expected"),
    [
        (ReadFrom.MASTER, 1, ["m"]),
        (ReadFrom.SLAVE, 0, ["a", "b", "m"]),
        (ReadFrom.SLAVE, 1, ["b", "a", "m"]),
        (ReadFrom.ANY, 0, ["m", "a", "b"]),
        (ReadFrom.ANY, 2, ["b", "m", "a"]),
    ],
)
def test_partitions_take_turns(read_from: ReadFrom, number: int, expected: list[str]) -> None:
    assert names(read_from, number, M, A, B) == expected


def test_without_a_slave_the_master_gives() -> None:
    assert names(ReadFrom.SLAVE, 3, M) == ["m"]
    assert names(ReadFrom.SLAVE, 3, M, node("a", "slave", reachable=False)) == ["m"]


def test_without_a_master_the_slaves_give() -> None:
    assert names(ReadFrom.ANY, 0, node("m", "master", reachable=False), A) == ["a"]


class PlainConnection:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.refreshed = 0

    async def current_topology(self) -> Topology:
        return self.topology

    async def refresh(self) -> Topology:
        self.refreshed += 1
        return self.topology

    def node(self, endpoint: str) -> str:
        return endpoint


class Left:
    """What leave() looks at."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint


def left(endpoint: str) -> Node:
    return Left(endpoint)  # type: ignore[return-value]


async def test_a_node_that_was_left_is_asked_again_when_all_were() -> None:
    connection = PlainConnection(Topology(nodes=(M, A), master_id="m"))
    choice = NodeChoice(connection, ReadFrom.SLAVE, 0)  # type: ignore[arg-type]
    assert await choice.current() == "a:1"
    choice.leave(left("a:1"))
    choice._current = None
    assert await choice.current() == "m:1"
    choice.leave(left("m:1"))
    choice._current = None
    assert await choice.current() == "a:1"
    assert connection.refreshed == 1


async def test_nobody_to_ask() -> None:
    connection = PlainConnection(Topology(asked=("m:1",)))
    choice = NodeChoice(connection, ReadFrom.MASTER, 0)  # type: ignore[arg-type]
    with pytest.raises(NoNodeError, match="no master can be reached"):
        await choice.current()

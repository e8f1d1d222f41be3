import pytest

from tandemlog.cluster.topology import NodeInfo, ReadFrom, Topology
from tandemlog.consume.reading.reader import NodeOrder, Reader
from tandemlog.errors import NoNodeError


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
    return [each.node_id for each in NodeOrder(read_from, number).nodes(topology)]


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


@pytest.mark.parametrize(
    ("read_from", "turn", "patient", "expected"),
    [
        (ReadFrom.SLAVE, None, True, {"a:1", "b:1"}),
        (ReadFrom.SLAVE, 0, True, {"a:1", "b:1", "m:1"}),
        (ReadFrom.ANY, None, True, {"a:1", "b:1", "m:1"}),
        (ReadFrom.MASTER, 3, True, {"m:1"}),
        (ReadFrom.SLAVE, 0, False, {"m:1"}),
        (ReadFrom.SLAVE, None, False, {"a:1", "b:1"}),
    ],
)
def test_lost_is_what_all_lack_that_may_be_read(
    read_from: ReadFrom, turn: int | None, patient: bool, expected: set[str]
) -> None:
    topology = Topology(nodes=(M, A, B), master_id="m")
    asked = NodeOrder(read_from, turn).deciders(topology, patient=patient)
    assert asked == frozenset(expected)


def test_without_a_master_nothing_is_lost() -> None:
    deposed = Topology(nodes=(M, A), master_id="m", newest_epoch=2)
    assert NodeOrder(ReadFrom.SLAVE, 0).deciders(deposed) is None
    assert NodeOrder(ReadFrom.ANY).deciders(deposed) is None


class PlainNode:
    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint


class PlainConnection:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.refreshed = 0
        self.nodes: dict[str, PlainNode] = {}

    async def current_topology(self) -> Topology:
        return self.topology

    async def refresh(self) -> Topology:
        self.refreshed += 1
        return self.topology

    def node(self, endpoint: str) -> PlainNode:
        return self.nodes.setdefault(endpoint, PlainNode(endpoint))


async def test_a_node_that_was_left_is_asked_again_when_all_were() -> None:
    connection = PlainConnection(Topology(nodes=(M, A), master_id="m"))
    reader = Reader(connection, ReadFrom.SLAVE, 0)  # type: ignore[arg-type]
    for expected in ("a:1", "m:1", "a:1"):
        node = await reader.node()
        assert (await reader.node(), node.endpoint) == (node, expected)
        reader.leave(node, "it is behind")
    assert connection.refreshed == 1


@pytest.mark.parametrize(
    ("read_from", "turn", "role"),
    [(ReadFrom.MASTER, 0, "master"), (ReadFrom.SLAVE, 0, "node"), (ReadFrom.SLAVE, None, "slave")],
)
async def test_nobody_to_ask(read_from: ReadFrom, turn: int | None, role: str) -> None:
    connection = PlainConnection(Topology(asked=("m:1",)))
    with pytest.raises(NoNodeError, match=f"no {role} can be reached"):
        await Reader(connection, read_from, turn).node()  # type: ignore[arg-type]

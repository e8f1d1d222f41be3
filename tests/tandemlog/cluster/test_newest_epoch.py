"""A client does not go back to a master of an older epoch than it has heard of."""

from collections.abc import AsyncIterator

import pytest

from tandemlog.cluster.connection import Connection
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.cluster.newest_epoch import NewestEpoch
from tandemlog.errors import NoMasterError, NotMasterError
from tandemlog.v1 import admin_pb2, broker_pb2, common_pb2


def described(node_id: str, epoch: int, *, master: str = "") -> admin_pb2.DescribeClusterResponse:
    role = common_pb2.MASTER if master == node_id else common_pb2.SLAVE
    status = common_pb2.NodeStatus(node_id=node_id, role=role, endpoint=node_id, epoch=epoch)
    return admin_pb2.DescribeClusterResponse(
        cluster_id="c", answered_by=node_id, master_id=master, nodes=[status]
    )


class Described(Connection):
    """A connection to nodes that say what `answers` says."""

    def __init__(self) -> None:
        super().__init__("m:1", ConnectionOptions())
        self.answers: dict[str, admin_pb2.DescribeClusterResponse] = {}

    async def _describe_all(self, endpoints):  # type: ignore[no-untyped-def]
        return dict(self.answers), {}


@pytest.fixture
async def connection() -> AsyncIterator[Described]:
    made = Described()
    yield made
    await made.close()


async def test_a_deposed_master_is_no_master(connection: Described) -> None:
    connection.answers = {"m:1": described("m", 1, master="m"), "s:1": described("s", 2)}
    with pytest.raises(NoMasterError, match="epoch 1, but epoch 2 was seen"):
        await connection.master()
    connection.answers["s:1"] = described("s", 2, master="s")
    assert (await connection.master()).endpoint == "s:1"
    assert (connection.master_id, connection.master_epoch) == ("s", 2)


async def test_it_stays_so_when_the_newer_one_is_gone(connection: Described) -> None:
    connection.answers = {
        "m:1": described("m", 1, master="m"),
        "s:1": described("s", 2, master="s"),
    }
    node = await connection.master()
    connection.forget_master(node)
    del connection.answers["s:1"]
    with pytest.raises(NoMasterError, match="deposed"):
        await connection.master()


async def test_an_answer_of_a_newer_epoch_ends_the_trust_in_the_master(
    connection: Described,
) -> None:
    connection.answers = {"m:1": described("m", 1, master="m")}
    assert (await connection.master()).endpoint == "m:1"
    connection.epochs.heard(2)
    with pytest.raises(NoMasterError, match="epoch 2 was seen"):
        await connection.master()
    connection.answers["s:1"] = described("s", 2, master="s")
    assert (await connection.master()).endpoint == "s:1"


async def test_another_cluster_at_the_same_endpoints_counts_from_its_own_beginning(
    connection: Described,
) -> None:
    connection.answers = {"m:1": described("m", 5, master="m")}
    await connection.master()
    connection.answers["m:1"].cluster_id = "other"
    connection.answers["m:1"].nodes[0].epoch = 1
    await connection.refresh()
    assert connection.epochs.value == 1
    assert connection.authority().epoch == 1


def test_an_older_answer_is_not_believed() -> None:
    epochs = NewestEpoch()
    epochs.believe(broker_pb2.FetchOffsetsResponse(master_epoch=2), "s:1")
    epochs.believe(broker_pb2.FetchOffsetsResponse(), "old:1")
    error = common_pb2.Error(code=common_pb2.UNKNOWN_GROUP, master_epoch=1)
    for late in (
        broker_pb2.FetchOffsetsResponse(master_epoch=1),
        broker_pb2.DescribeGroupResponse(error=error),
    ):
        with pytest.raises(NotMasterError, match="m:1 says that it is the master of epoch 1"):
            epochs.believe(late, "m:1")
    assert epochs.value == 2

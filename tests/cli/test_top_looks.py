"""What `tandemlog top` asks of a cluster, and what it does with what does not answer."""

import asyncio

import pytest

from tandemlog import Security
from tandemlog.cluster.elections import Coordination, History
from tandemlog.cluster.topic_info import TopicInfo
from tandemlog.cluster.topology import CoordinatorInfo, NodeInfo, Topology
from tandemlog.errors import AuthenticationError, CoordinatorUnavailableError, NoNodeError
from tandemlog_server.cli.top import looks
from tandemlog_server.cli.top.looks import Looks

COORDINATOR = CoordinatorInfo(("127.0.0.1:2379",), "etcd", 7, 0.1, False)
STATE = Coordination("n0", COORDINATOR, "uuid", 1, "n0", True, "", 0, (), (), None)


class AskedCluster:
    """One node without an HTTP port. `errors` by the name of a question, `held` what is not
    answered; `asked` counts the questions."""

    def __init__(self, *, elects: bool = True) -> None:
        self.errors: dict[str, Exception] = {}
        self.held: set[str] = set()
        self.asked: dict[str, int] = {}
        self.epoch = 1
        self.elects = elects

    async def _answer(self, question: str) -> None:
        self.asked[question] = self.asked.get(question, 0) + 1
        if question in self.errors:
            raise self.errors[question]
        if question in self.held:
            await asyncio.Event().wait()

    async def cluster(self) -> Topology:
        await self._answer("cluster")
        node = NodeInfo(
            "n0", "master", "127.0.0.1:1", "", "running", self.epoch, True, 0, 0, 0, 0, 0, 0, 0.0,
            "", "", reachable=True,
        )  # fmt: skip
        return Topology(
            nodes=(node,),
            master_id="n0",
            newest_epoch=self.epoch,
            coordinator=COORDINATOR if self.elects else None,
        )

    async def coordination(self) -> Coordination:
        await self._answer("coordination")
        return STATE

    async def history(self) -> History:
        await self._answer("history")
        return History("n0", 7, ())

    async def topics(self) -> list[TopicInfo]:
        await self._answer("topics")
        return [TopicInfo("orders")]


def looking(cluster: AskedCluster, timeout_s: float = 30) -> Looks:
    return Looks(cluster, Security(), timeout_s)


async def test_the_first_look_has_everything() -> None:
    look = await looking(AskedCluster()).first()
    assert look.topology is not None
    assert look.details.coordination == STATE
    assert look.details.history == History("n0", 7, ())
    assert look.details.topics == [TopicInfo("orders")]
    assert [each.fault for each in look.samples] == ["it has no HTTP port (http_listen)"]
    assert (look.fault, look.details.faults) == ("", ())


async def test_a_cluster_without_elections_is_not_asked_for_them() -> None:
    cluster = AskedCluster(elects=False)
    each = looking(cluster)
    await each.first()
    look = await each.next()
    assert cluster.asked == {"cluster": 2, "topics": 1}
    assert (look.details.coordination, look.details.history) == (None, None)
    assert not look.details.faults


async def test_what_changes_rarely_is_asked_rarely_or_in_a_new_epoch() -> None:
    cluster = AskedCluster()
    each = looking(cluster)
    await each.first()
    for _ in range(3):
        await each.next()
    assert cluster.asked == {"cluster": 4, "coordination": 4, "history": 1, "topics": 1}
    cluster.epoch = 2
    await each.next()
    assert cluster.asked["history"] == 2


async def test_the_first_look_raises_what_is_wrong() -> None:
    cluster = AskedCluster()
    cluster.errors["cluster"] = AuthenticationError("the token is unknown")
    with pytest.raises(AuthenticationError):
        await looking(cluster).first()


async def test_later_it_is_said_and_the_next_look_may_find_more() -> None:
    cluster = AskedCluster()
    each = looking(cluster)
    await each.first()
    cluster.errors["cluster"] = NoNodeError("no node can be reached: 127.0.0.1:1")
    look = await each.next()
    assert (look.topology, look.samples) == (None, ())
    assert look.fault == "no node can be reached: 127.0.0.1:1"
    assert look.details.coordination is None
    assert look.details.topics == [TopicInfo("orders")]
    cluster.errors.clear()
    look = await each.next()
    assert look.topology is not None
    assert (look.fault, look.details.coordination) == ("", STATE)


async def test_a_coordinator_that_fails_is_said_and_the_rest_is_kept() -> None:
    cluster = AskedCluster()
    each = looking(cluster)
    await each.first()
    cluster.errors["coordination"] = CoordinatorUnavailableError("etcd is away")
    look = await each.next()
    assert look.details.faults == ("the coordinator cannot be read: etcd is away",)
    assert look.details.coordination is None
    assert look.details.history is not None
    cluster.errors.clear()
    assert not (await each.next()).details.faults


async def test_details_that_hang_hold_up_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "PATIENCE_S", 0.01)
    cluster = AskedCluster()
    each = looking(cluster)
    await each.first()
    cluster.held.add("coordination")
    found = [await each.next() for _ in range(3)]
    assert [look.topology is not None for look in found] == [True] * 3
    assert cluster.asked["coordination"] == 2, "it is asked once at a time"
    assert found[-1].details.coordination == STATE
    each.close()


async def test_nodes_that_hang_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "LIMIT_S", 0.01)
    cluster = AskedCluster()
    each = looking(cluster)
    await each.first()
    cluster.held.add("cluster")
    assert (await each.next()).fault == "no node has answered within 0.01 s"

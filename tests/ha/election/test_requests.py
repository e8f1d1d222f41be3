"""What an operator may ask of a cluster, against a coordinator in memory."""

import pytest

from fakes.fake_coordinator import CoordinatorWorld, FakeCoordinator, Fault
from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorUnavailableError,
    UnknownOutcomeError,
)
from tandemlog_server.ha.coordinator.values import Delete, KeyRange, Put, Txn, TxnResult
from tandemlog_server.ha.election.key_values import (
    ClusterRecord,
    MemberValue,
    RequestValue,
    RosterValue,
    encode,
)
from tandemlog_server.ha.election.keys import ClusterKeys
from tandemlog_server.ha.election.requests import (
    Action,
    Change,
    ChangeRefusedError,
    ClusterRequests,
)
from tandemlog_server.ha.election.transactions import Candidate, first_record
from tandemlog_server.ha.state import Member

KEYS = ClusterKeys("c")
TTL_S = 6


def member(node_id: str, end: int = 100, obstacle: str = "") -> MemberValue:
    return MemberValue(
        node_id, f"disk-{node_id}", f"session-{node_id}", f"{node_id}:1",
        end_offset=end, last_epoch=1, obstacle=obstacle, lease=7,
    )  # fmt: skip


class Cluster:
    """n0 leads, n1 is in sync, n2 is up and behind, n3 is down; n4 was removed."""

    def __init__(self) -> None:
        self.world = CoordinatorWorld()
        self.client: FakeCoordinator = self.world.client()
        self.requests = ClusterRequests(self.client, KEYS, TTL_S, required=2)

    async def found(self) -> "Cluster":
        lease = (await self.client.grant_lease(600)).lease_id
        nodes = [member("n0"), member("n1"), member("n2", 40)]
        await self.client.txn(first_record(KEYS, Candidate(nodes[0], lease), "u", 0, 1_000))
        record = ClusterRecord(
            1, Member("n0", "disk-n0"), "session-n0",
            frozenset({Member("n0", "disk-n0"), Member("n1", "disk-n1")}),
        )  # fmt: skip
        await self.put(KEYS.state, record)
        for each in nodes:
            await self.client.txn(Txn(then=(Put(KEYS.member(each.node_id), encode(each), lease),)))
        for node_id in ("n0", "n1", "n2", "n3", "n4"):
            await self.put(KEYS.in_roster(node_id), RosterValue(3, node_id == "n4"))
        return self

    async def put(self, key: bytes, value: object) -> None:
        await self.client.txn(Txn(then=(Put(key, encode(value)),)))

    async def lose(self, *keys: bytes) -> None:
        await self.client.txn(Txn(then=tuple(Delete(KeyRange(key)) for key in keys)))

    async def refused(self, change: Change) -> str:
        before = self.world.machine.revision
        with pytest.raises(ChangeRefusedError) as error:
            await self.requests.change(change)
        assert self.world.machine.revision == before
        return str(error.value)


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().found()


async def test_a_switch_is_asked_for_and_names_its_target(cluster: Cluster) -> None:
    planned = await cluster.requests.change(Change(Action.SWITCHOVER, request_id="r", dry_run=True))
    assert (planned.node_id, planned.changed) == ("n1", False)
    assert (await cluster.requests.read()).snapshot.request is None
    done = await cluster.requests.change(Change(Action.SWITCHOVER, request_id="r", epoch=1))
    assert (done.node_id, done.changed) == ("n1", True)
    held = (await cluster.requests.read()).snapshot.request
    assert held == RequestValue("switchover", "", "r")
    again = await cluster.requests.change(Change(Action.SWITCHOVER, request_id="r"))
    assert not again.changed
    said = await cluster.refused(Change(Action.SWITCHOVER, request_id="other"))
    assert "under way (request r)" in said


async def test_a_request_ends_with_its_lease(cluster: Cluster) -> None:
    await cluster.requests.change(Change(Action.SWITCHOVER, request_id="r"))
    cluster.world.advance(31)
    assert (await cluster.requests.read()).snapshot.request is None


async def test_a_request_is_withdrawn_by_its_id_alone(cluster: Cluster) -> None:
    await cluster.requests.change(Change(Action.FAILOVER, "n2", "r"))
    assert not (await cluster.requests.change(Change(Action.WITHDRAW, request_id="x"))).changed
    assert (await cluster.requests.change(Change(Action.WITHDRAW, request_id="r"))).changed
    assert (await cluster.requests.read()).snapshot.request is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Change(Action.SWITCHOVER, "n0", "r"), "n0 leads already"),
        (Change(Action.SWITCHOVER, "n2", "r"), "n2 is not in sync"),
        (Change(Action.SWITCHOVER, "n3", "r"), "n3 is not up; nodes that are: n1, n2"),
        (Change(Action.SWITCHOVER, "n1", "r", epoch=7), "n0 leads epoch 1, not 7"),
        (Change(Action.FAILOVER, "n0", "r"), "n0 leads already"),
        (Change(Action.FAILOVER, "n3", "r"), "n3 is not up"),
        (Change(Action.FAILOVER, "n4", "r"), "n4 was removed"),
        (Change(Action.REMOVE_MEMBER, "n0"), "n0 is the master"),
        (Change(Action.REMOVE_MEMBER, "n1"), "n1 is up: stop it first"),
        (Change(Action.REMOVE_MEMBER, "n1"), f"lease ends, {TTL_S} s after the crash at most"),
        (Change(Action.REINIT, "n0", "r"), "n0 is the master: a node that follows"),
        (Change(Action.REINIT, "n0", "r", force=True), "never the master"),
        (Change(Action.REINIT, "n1", "r"), "nodes in sync would be n0, but min_in_sync is 2"),
        (Change(Action.REINIT, "n3", "r"), "n3 is not up"),
        (Change(Action.REINIT, "n4", "r"), "n4 was removed"),
        (Change(Action.REINIT, "n2", "r", epoch=7), "n0 leads epoch 1, not 7"),
        (Change(Action.REMOVE_MEMBER, "n7"), "the cluster knows no node n7 (known: n0, n1"),
        (Change(Action.ADD_MEMBER, "n7"), "a new node joins by being started"),
    ],
)
async def test_what_is_refused_changes_nothing(cluster: Cluster, change: Change, said: str) -> None:
    assert said in await cluster.refused(change)


async def test_without_a_leader_there_is_none_to_switch_from(cluster: Cluster) -> None:
    await cluster.lose(KEYS.leader)
    said = await cluster.refused(Change(Action.SWITCHOVER, request_id="r"))
    assert "no master now" in said
    said = await cluster.refused(Change(Action.REINIT, "n2", "r", force=True))
    assert "no master now from which n2 could be resynced" in said


async def test_a_resync_is_asked_for_where_enough_nodes_stay_in_sync(cluster: Cluster) -> None:
    """n2 is not in the set: nothing gets worse by its resync, although only two nodes are."""
    planned = await cluster.requests.change(Change(Action.REINIT, "n2", "r", dry_run=True))
    assert (planned.node_id, planned.changed) == ("n2", False)
    await cluster.requests.change(Change(Action.REINIT, "n2", "r", epoch=1))
    held = (await cluster.requests.read()).snapshot.request
    assert held == RequestValue("reinit", "n2", "r")
    said = await cluster.refused(Change(Action.SWITCHOVER, request_id="other"))
    assert "a reinit of n2 is under way (request r)" in said


async def test_min_in_sync_gives_way_to_force_alone(cluster: Cluster) -> None:
    await cluster.requests.change(Change(Action.REINIT, "n1", "r", force=True))
    held = (await cluster.requests.read()).snapshot.request
    assert held == RequestValue("reinit", "n1", "r", force=True)


async def test_a_node_that_is_not_up_does_not_count_as_in_sync(cluster: Cluster) -> None:
    """All three are in the set, but the third one's lease has ended."""
    record = ClusterRecord(
        1, Member("n0", "disk-n0"), "session-n0",
        frozenset(Member(name, f"disk-{name}") for name in ("n0", "n1", "n2")),
    )  # fmt: skip
    await cluster.put(KEYS.state, record)
    change = Change(Action.REINIT, "n1", "r", dry_run=True)
    assert (await cluster.requests.change(change)).node_id == "n1"
    await cluster.lose(KEYS.member("n2"))
    assert "nodes in sync would be n0, but" in await cluster.refused(change)


async def test_a_cluster_without_a_record_can_be_asked_nothing() -> None:
    said = await Cluster().refused(Change(Action.PAUSE))
    assert "elected no master yet" in said


async def test_pause_and_resume(cluster: Cluster) -> None:
    assert (await cluster.requests.change(Change(Action.PAUSE))).changed
    assert (await cluster.requests.read()).snapshot.settings.paused
    assert not (await cluster.requests.change(Change(Action.PAUSE))).changed
    assert (await cluster.requests.change(Change(Action.RESUME))).changed
    assert not (await cluster.requests.read()).snapshot.settings.paused


async def test_a_member_is_removed_and_taken_back(cluster: Cluster) -> None:
    assert (await cluster.requests.change(Change(Action.REMOVE_MEMBER, "n3"))).changed
    assert (await cluster.requests.change(Change(Action.REMOVE_MEMBER, "n2", force=True))).changed
    roster = (await cluster.requests.read()).snapshot.roster
    assert roster["n3"] == RosterValue(3, True)
    assert roster["n2"].removed
    assert (await cluster.requests.change(Change(Action.ADD_MEMBER, "n3"))).changed
    assert not (await cluster.requests.change(Change(Action.ADD_MEMBER, "n3"))).changed
    assert (await cluster.requests.read()).snapshot.roster["n3"] == RosterValue(3, False)


async def test_a_change_between_the_read_and_the_transaction_is_looked_at(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n3 comes up after its removal was decided: it is refused then."""
    original, first = cluster.client.txn, True

    async def txn(wanted: Txn) -> TxnResult:
        nonlocal first
        if first:
            first = False
            await original(Txn(then=(Put(KEYS.member("n3"), encode(member("n3"))),)))
        return await original(wanted)

    monkeypatch.setattr(cluster.client, "txn", txn)
    with pytest.raises(ChangeRefusedError, match="n3 is up"):
        await cluster.requests.change(Change(Action.REMOVE_MEMBER, "n3"))


async def test_a_coordinator_that_is_away_is_an_error_of_its_own(cluster: Cluster) -> None:
    cluster.client.faults.append(Fault.UNREACHABLE)
    with pytest.raises(CoordinatorUnavailableError):
        await cluster.requests.read()
    cluster.client.faults.extend([None, Fault.LOST_ANSWER])
    with pytest.raises(UnknownOutcomeError):
        await cluster.requests.change(Change(Action.PAUSE))
    assert (await cluster.requests.read()).snapshot.settings.paused

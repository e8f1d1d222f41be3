"""How the agent renews: what it publishes, and what it takes for a proof of its leadership."""

from dataclasses import replace
from itertools import permutations

import pytest

from fakes.clock import FakeClock
from fakes.election import KEYS, SyncCoordinator, disk, record, up
from fakes.fake_coordinator import CoordinatorWorld, Fault
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.ha.config import HaConfig, Replication
from tandemlog_server.ha.coordinator.coordinator_errors import UnknownOutcomeError
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.election.election_config import ElectionConfig
from tandemlog_server.ha.election.key_values import (
    SWITCHOVER,
    ConfirmedValue,
    LeaderValue,
    RequestValue,
    RosterValue,
)
from tandemlog_server.ha.election.role_host import Identity, OwnLog
from tandemlog_server.ha.election.role_loop import KeepLeading, StepDown
from tandemlog_server.ha.election.switchover import HANDOVER_LIMIT_S
from tandemlog_server.ha.state import Member

SET = frozenset({disk("a"), disk("b"), disk("c")})
TABLE = EpochTable((EpochEntry(1, 0),))


class Host:
    """A node whose log is all that matters here."""

    held_back = ""
    accepted = 0
    confirmed = 80
    fenced = ""
    connected = disk("b")
    kept_out = ""
    sent = True

    def own_log(self) -> OwnLog:
        return OwnLog("1", 1, 1, 100, epochs=TABLE, confirm_offset=self.confirmed)

    def fence(self, reason: str) -> None:
        self.fenced = reason

    async def wait(self, reason: str) -> None:
        return

    def say_why(self, reason: str) -> None:
        return

    def hold_puts(self, reason: str) -> None:
        self.held_back = reason

    def tables_sent(self) -> bool:
        return self.sent

    def durable_on(self, member: Member) -> int | None:
        return 100 if member == self.connected else None

    def log_end(self) -> int:
        return 100

    def keep_out(self, node_id: str) -> None:
        self.kept_out = node_id

    def puts_under_way(self) -> int:
        return self.accepted


class Running:
    """The agent of `a`, which has a lease, and the keys."""

    def __init__(self, replication: Replication = Replication.SYNC, uuid: str = "") -> None:
        clock = FakeClock()
        self.world = CoordinatorWorld(clock)
        self.keys = SyncCoordinator(self.world)
        self.client, self.host = self.world.client(), Host()
        self.agent = ElectionAgent(
            self.client,
            self.host,  # type: ignore[arg-type]
            Identity("a", "a:1", "", "", cluster_uuid=uuid),
            HaConfig("c", "a", mode=replication, min_in_sync=2),
            ElectionConfig(),
            clock,
            clock.monotonic,
        )

    async def renew(self) -> None:
        await self.agent._read_once()
        await self.agent._renew()

    def lead(self, node_id: str, session: str, epoch: int) -> None:
        named = replace(record("a", "b", epoch=epoch), session=session)
        self.keys.put(KEYS.state, named)
        value = LeaderValue(node_id, session, epoch, f"{node_id}:1")
        self.keys.put(KEYS.leader, value, self.agent.lease.lease_id)


@pytest.fixture
def running() -> Running:
    return Running()


async def test_what_a_node_says_of_itself_is_put_once(running: Running) -> None:
    await running.renew()
    assert running.keys.snapshot().members["a"].end_offset == 100
    revision = running.keys.snapshot().revision
    await running.renew()
    assert running.keys.snapshot().revision == revision


@pytest.mark.parametrize("order", list(permutations(("renew", "read", "register", "turn"))))
async def test_a_node_of_another_cluster_changes_nothing_here(order: tuple[str, ...]) -> None:
    """A wrong address led it to this coordinator, where a node has its name and its folder's. Its
    tasks run side by side, so any of them may be the first."""
    stranger = Running(uuid="another")
    stranger.keys.put(KEYS.uuid, b"this one")
    stranger.keys.put(KEYS.state, record("a", "b", epoch=1))
    stranger.keys.put(KEYS.in_roster("a"), RosterValue(4))
    stranger.keys.put(KEYS.member("a"), up("a"), stranger.keys.lease())
    before = stranger.keys.snapshot()

    async def turn() -> None:
        await stranger.agent.turn()
        await stranger.agent.losses.write()

    tasks = {
        "renew": stranger.agent.renew,
        "read": stranger.agent._read_once,
        "register": stranger.agent.registration.step,
        "turn": turn,
    }
    for name in (*order, *order):
        await tasks[name]()
    assert stranger.keys.snapshot() == before


async def test_a_node_of_the_cluster_is_shown_with_its_first_renewal() -> None:
    running = Running(uuid="this one")
    running.keys.put(KEYS.uuid, b"this one")
    await running.agent.renew()
    assert running.keys.snapshot().members["a"].end_offset == 100


async def test_what_a_node_says_reaches_no_other_cluster_that_came_in_between() -> None:
    """The keys were read, and then an operator put another cluster's into their place."""
    running = Running(uuid="this one")
    running.keys.put(KEYS.uuid, b"this one")
    await running.agent._read_once()
    running.keys.put(KEYS.uuid, b"another")
    await running.agent._renew()
    assert "a" not in running.keys.snapshot().members
    assert running.agent.accepted_at is None


async def test_a_member_whose_key_is_gone_is_put_again(running: Running) -> None:
    """A put of the process before was carried out late, and its lease has ended."""
    await running.renew()
    before = running.keys.lease()
    running.keys.put(KEYS.member("a"), running.keys.snapshot().members["a"], before)
    running.keys.end(before)
    assert "a" not in running.keys.snapshot().members
    await running.renew()
    assert running.keys.snapshot().members["a"].lease == running.agent.lease.lease_id


async def test_a_leader_proves_its_term(running: Running) -> None:
    await running.renew()
    running.lead("a", running.agent.session, 2)
    running.agent.leading = 2
    assert running.agent.lease_fault()
    await running.renew()
    assert not running.agent.lease_fault()


async def leading(replication: Replication = Replication.SYNC) -> Running:
    running = Running(replication)
    await running.renew()
    running.lead("a", running.agent.session, 2)
    running.agent.leading = 2
    return running


async def test_who_was_deposed_tells_nothing_when_it_stops() -> None:
    """It has not heard of the next leader yet; what that one has told stays."""
    running = await leading()
    running.lead("b", "other", 3)
    told = ConfirmedValue(95, 1, 3)
    running.keys.put(KEYS.confirmed, told)
    await running.agent.resign()
    assert running.keys.snapshot().confirmed == told


def test_a_port_is_open_again_once_replication_works(running: Running) -> None:
    agent = running.agent
    agent._following = LeaderValue("b", "s", 2, "b:1")
    agent._loop.port_is_closed(2)
    agent.stream_back()
    assert agent._loop._closed_port_epoch == 0


async def test_a_leader_tells_how_far_the_log_is_confirmed() -> None:
    running = await leading()
    await running.renew()
    assert running.keys.snapshot().confirmed == ConfirmedValue(80, 1, 2)
    revision = running.keys.snapshot().confirmed_revision
    await running.renew()
    assert running.keys.snapshot().confirmed_revision == revision, "it has not changed"
    running.host.confirmed = 90
    await running.renew()
    assert running.keys.snapshot().confirmed == ConfirmedValue(90, 1, 2)


async def test_what_is_told_late_does_not_move_it_back() -> None:
    running = await leading()
    running.client.faults.extend((None, None, None, Fault.DELAYED))
    await running.agent._read_once()
    with pytest.raises(UnknownOutcomeError):
        await running.agent._renew()
    running.host.confirmed = 90
    await running.renew()
    running.world.deliver()
    assert running.keys.snapshot().confirmed == ConfirmedValue(90, 1, 2)


async def test_a_leader_that_stops_tells_it_for_the_last_time() -> None:
    running = await leading()
    await running.renew()
    running.host.confirmed = 95
    await running.agent.resign()
    snapshot = running.keys.snapshot()
    assert (snapshot.leader, snapshot.confirmed) == (None, ConfirmedValue(95, 1, 2))


async def test_a_lease_is_given_back_whatever_else_fails() -> None:
    running = await leading()
    running.client.faults.append(Fault.LOST_REQUEST)
    await running.agent.resign()
    assert running.keys.snapshot().leader is None


@pytest.mark.parametrize("led", [0, 2])
async def test_a_leadership_that_is_given_back(led: int) -> None:
    """One that was never begun, because another disk won it, is looked at again in a while: until
    the coordinator has heard of it nothing changes."""
    running = await leading()
    running.agent.leading = led
    await running.agent._read_once()
    pause = await running.agent._execute(StepDown("another disk of this node was elected"))
    assert (pause == 0) is bool(led)
    assert running.host.fenced
    assert running.keys.snapshot().leader is None


async def test_others_tell_nothing() -> None:
    running = Running()
    await running.renew()
    await running.agent.resign()
    in_async = await leading(Replication.ASYNC)
    await in_async.renew()
    assert running.keys.snapshot().confirmed is in_async.keys.snapshot().confirmed is None


@pytest.mark.parametrize("seen", [True, False])
async def test_a_leader_that_was_replaced_proves_nothing(running: Running, seen: bool) -> None:
    await running.renew()
    running.lead("a", running.agent.session, 2)
    await running.agent._read_once()
    running.agent.leading = 2
    running.lead("b", "b-1", 3)
    if seen:  # and it has not stepped down yet
        await running.agent._read_once()
    await running.agent._renew()
    assert running.agent.lease_fault()


@pytest.mark.parametrize("replication", [Replication.SYNC, Replication.ASYNC])
async def test_puts_after_a_hand_over_without_an_answer(replication: Replication) -> None:
    """In async replication nothing but the lease keeps what this leader accepts while the hand-over
    may yet be executed."""
    running = Running(replication)
    agent, keys = running.agent, running.keys
    await running.renew()
    running.lead("a", agent.session, 2)
    keys.join("b")
    request = RequestValue(SWITCHOVER, "b", "1")
    keys.put(KEYS.request, request)
    await agent._read_once()
    agent.leading = 2
    await agent._keep_leading(KeepLeading(request))
    assert running.host.held_back
    running.client.faults.append(Fault.DELAYED)
    await agent._keep_leading(KeepLeading(request))
    running.world.clock.advance(HANDOVER_LIMIT_S + 0.1)
    running.client.reachable = False
    await agent._keep_leading(KeepLeading(request))
    assert bool(running.host.held_back) is (replication is Replication.ASYNC)
    if replication is Replication.SYNC:
        return  # b holds whatever is acknowledged from now on
    running.client.reachable = True
    await agent._keep_leading(KeepLeading(request))
    await agent._keep_leading(KeepLeading())
    assert not running.host.held_back
    running.world.deliver()
    assert keys.record().epoch == 2


async def switching(replication: Replication = Replication.SYNC) -> tuple[Running, RequestValue]:
    """A leader that has begun to switch to `b`."""
    running = Running(replication)
    await running.renew()
    running.lead("a", running.agent.session, 2)
    running.keys.join("b")
    request = RequestValue(SWITCHOVER, "b", "1")
    running.keys.put(KEYS.request, request)
    await running.agent._read_once()
    running.agent.leading = 2
    await running.agent._keep_leading(KeepLeading(request))
    assert running.host.held_back
    return running, request


async def test_a_node_that_is_about_to_start_over_is_kept_out_until_that_is_done() -> None:
    running = Running()
    await running.agent._keep_leading(KeepLeading(keep_out="b"))
    assert running.host.kept_out == "b"
    await running.agent._keep_leading(KeepLeading())
    assert not running.host.kept_out


async def test_nothing_is_handed_over_while_accepted_puts_are_not_appended() -> None:
    running, request = await switching()
    running.host.accepted = 1
    await running.agent._keep_leading(KeepLeading(request))
    assert running.keys.record().epoch == 2
    running.host.accepted = 0
    await running.agent._keep_leading(KeepLeading(request))
    assert running.keys.record().epoch == 3


@pytest.mark.parametrize("change", ["left the set", "another disk"])
async def test_nothing_is_handed_over_to_a_node_that_is_not_in_sync_any_more(change: str) -> None:
    running, request = await switching()
    if change == "left the set":
        running.keys.put(KEYS.state, replace(running.keys.record(), in_sync=frozenset({disk("a")})))
    else:
        running.keys.join("b", incarnation="2")
    await running.agent._read_once()
    await running.agent._keep_leading(KeepLeading(request))
    assert running.keys.record().epoch == 2
    assert not running.host.held_back
    answered = running.keys.snapshot().request
    assert answered is not None
    assert "not in sync" in answered.outcome


async def test_what_another_disk_of_the_target_holds_does_not_count() -> None:
    """Its key still names the disk that it had."""
    running, request = await switching()
    running.host.connected = disk("b", "2")
    await running.agent._keep_leading(KeepLeading(request))
    assert running.keys.record().epoch == 2


async def test_another_request_chooses_its_own_target() -> None:
    running, _ = await switching()
    running.keys.join("c")
    running.keys.put(KEYS.state, replace(running.keys.record(), in_sync=SET))
    other = RequestValue(SWITCHOVER, "c", "2")
    running.keys.put(KEYS.request, other)
    await running.agent._read_once()
    running.host.connected = disk("c")
    for _ in range(2):
        await running.agent._keep_leading(KeepLeading(other))
    assert running.keys.record().leader == disk("c")


async def test_a_switch_without_the_coordinator_holds_puts_back_once() -> None:
    running, request = await switching()
    running.client.reachable = False
    await running.agent._keep_leading(KeepLeading(request))
    running.world.clock.advance(HANDOVER_LIMIT_S + 0.1)
    await running.agent._keep_leading(KeepLeading(request))
    assert not running.host.held_back
    await running.agent._keep_leading(KeepLeading(request))
    assert not running.host.held_back, "a request that was refused is not tried again"


async def test_nothing_is_handed_over_while_the_slaves_take_the_newest_tables() -> None:
    running, request = await switching()
    running.host.sent = False
    await running.agent._keep_leading(KeepLeading(request))
    assert running.keys.record().epoch == 2
    running.host.sent = True
    await running.agent._keep_leading(KeepLeading(request))
    assert running.keys.record().epoch == 3

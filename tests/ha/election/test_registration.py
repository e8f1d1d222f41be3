"""A start is counted: against what was read, once, and after a look at the disk."""

import pytest

from fakes.election import KEYS, SyncCoordinator, up
from fakes.fake_coordinator import CoordinatorWorld, Fault
from sim.election_nodes import drive
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.coordinator.coordinator_errors import CoordinatorUnavailableError
from tandemlog_server.ha.election.key_values import ConfirmedValue, RosterValue
from tandemlog_server.ha.election.registration import Registration
from tandemlog_server.ha.election.role_host import Identity, OwnLog
from tandemlog_server.ha.election.role_loop import Own, distrust
from tandemlog_server.ha.election.snapshot import SnapshotBuilder


class Starting:
    """Node `b` in its fifth start, which the cluster has seen four times."""

    def __init__(self, starts: int = 5, end: int = 100) -> None:
        self.world = CoordinatorWorld()
        self.keys = SyncCoordinator(self.world)
        self.keys.found("a", "b", "c")
        self.keys.put(KEYS.in_roster("b"), RosterValue(4))
        self.keys.put(KEYS.confirmed, ConfirmedValue(100, 1, 1))
        self.client, self.builder = self.world.client(), SnapshotBuilder(KEYS)
        self.log = OwnLog("1", 1, 1, end)
        self.renewed: list[tuple[str, int]] = []
        self.registration = Registration(
            self.client,
            KEYS,
            self,  # type: ignore[arg-type]
            Identity("b", "h:1", "h:2", "h:3", starts=starts),
            Replication.SYNC,
            self.look,
            lambda snapshot: distrust(snapshot, Own(up("b"), uuid=self.uuid)),
        )

    uuid = ""

    def own_log(self) -> OwnLog:
        return self.log

    async def renew_incarnation(self, reason: str, starts: int) -> None:
        self.renewed.append((reason, starts))

    async def look(self) -> SnapshotBuilder:
        self.builder.apply(await self.client.range(KEYS.all))
        return self.builder

    async def counted(self) -> int:
        """How many steps it takes."""
        for count in range(1, 6):
            await self.registration.step()
            if self.registration.done:
                return count
        raise AssertionError("not within five steps")

    @property
    def entry(self) -> RosterValue:
        return self.keys.snapshot().roster["b"]


@pytest.fixture
def starting() -> Starting:
    return Starting()


async def test_a_start_is_counted(starting: Starting) -> None:
    assert await starting.counted() == 2
    assert (starting.entry, starting.renewed) == (RosterValue(5), [])


async def test_a_node_that_is_new() -> None:
    starting = Starting(starts=1)
    starting.keys.delete(KEYS.in_roster("b"))
    await starting.counted()
    assert (starting.entry, starting.renewed) == (RosterValue(1), [])


@pytest.mark.parametrize(("starts", "end", "counted"), [(5, 99, 5), (4, 100, 5), (1, 0, 5)])
async def test_a_disk_that_was_put_back_gets_a_new_incarnation(
    starts: int, end: int, counted: int
) -> None:
    starting = Starting(starts, end)
    await starting.counted()
    assert [count for _, count in starting.renewed] == [counted]
    assert starting.entry == RosterValue(counted)


@pytest.mark.parametrize(
    ("fault", "steps"),
    [(Fault.LOST_ANSWER, 2), (Fault.LOST_REQUEST, 3), (Fault.UNREACHABLE, 3), (Fault.DELAYED, 3)],
)
async def test_an_outcome_that_is_unknown(starting: Starting, fault: Fault, steps: int) -> None:
    starting.client.faults.extend((None, fault))
    assert await starting.counted() == steps
    starting.world.deliver()
    assert starting.entry == RosterValue(5)


async def test_a_coordinator_that_is_away(starting: Starting) -> None:
    starting.client.reachable = False
    with pytest.raises(CoordinatorUnavailableError):
        await starting.registration.step()
    starting.client.reachable = True
    await starting.counted()


async def test_a_removal_at_the_same_time_stays(starting: Starting) -> None:
    step = starting.registration.step()
    for _ in range(3):  # the keys are read, and the entry is about to be sent
        step.send(None)
    starting.keys.put(KEYS.in_roster("b"), RosterValue(4, removed=True))
    drive(step)
    assert starting.entry == RosterValue(4, removed=True)
    await starting.counted()
    assert starting.entry == RosterValue(5, removed=True)


async def test_an_entry_that_arrives_late_undoes_no_removal(starting: Starting) -> None:
    starting.client.faults.extend((None, Fault.DELAYED))
    await starting.registration.step()
    starting.keys.put(KEYS.in_roster("b"), RosterValue(4, removed=True))
    starting.world.deliver()
    assert starting.entry.removed


async def test_at_the_coordinator_of_another_cluster_nothing_is_counted_or_doubted() -> None:
    """Its roster has a node of the same name, with more starts."""
    bench = Starting(starts=2)
    bench.uuid = "another"
    for _ in range(3):
        await bench.registration.step()
    assert not bench.registration.done
    assert bench.entry == RosterValue(4)
    assert bench.renewed == []

"""How long a client waits for answers before it believes a master: in virtual time, with nodes that
answer when a test says so."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pytest

from fakes.clock import FakeClock
from sim.world_loop import WorldLoop, world_time
from tandemlog.cluster.connection import OTHERS_S, SETTLED_S, Connection
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.errors import NodeUnavailableError, TandemlogError
from tandemlog.v1 import admin_pb2, common_pb2

T = TypeVar("T")
Answer = admin_pb2.DescribeClusterResponse
SEEDS = ("n0:1", "n1:1", "n2:1")
CONFIGURED = None


def answer(by: str, epoch: int = 5, uuid: str | None = "X", *, leads: bool = False) -> Answer:
    row = common_pb2.NodeStatus(
        node_id=by.partition(":")[0],
        role=common_pb2.MASTER if leads else common_pb2.SLAVE,
        endpoint=by,
        epoch=epoch,
    )
    said = Answer(
        cluster_id="c",
        answered_by=row.node_id,
        master_id=row.node_id if leads else "",
        nodes=[row],
    )
    if uuid is not None:
        said.coordinator.CopyFrom(admin_pb2.CoordinatorStatus(cluster_uuid=uuid, epoch=epoch))
    return said


ELECTED = {"n1:1": answer("n1:1", leads=True), "n2:1": answer("n2:1")}
FRESH = answer("n0:1", 1, CONFIGURED, leads=True)
"""n0 with a new disk, and without [coordinator]."""
SILENT = 1e6
"""Seconds: no answer at all."""


class Delayed(Connection):
    """Nodes that answer after `delays` seconds; one without an answer refuses."""

    def __init__(self, answers: Mapping[str, Answer], delays: Mapping[str, float]) -> None:
        super().__init__(SEEDS, ConnectionOptions())
        self.answers, self.delays = dict(answers), dict(delays)
        self.rounds = 0

    async def _describe(self, endpoint: str) -> Answer | TandemlogError:
        delay = self.delays.get(endpoint, 0.0)
        try:
            async with asyncio.timeout(self.options.discovery_timeout_ms / 1000):
                await asyncio.sleep(delay)
        except TimeoutError:
            return NodeUnavailableError(f"{endpoint}: deadline exceeded")
        found = self.answers.get(endpoint)
        return found or NodeUnavailableError(f"{endpoint}: refused", reason="connection refused")

    async def took(self) -> float:
        """Seconds of the world until it knew who the master is."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self.refresh()
        return round(loop.time() - began, 3)

    @property
    def at(self) -> str:
        return "" if self.topology.authority is None else self.topology.authority.endpoint


def in_time(work: Callable[[], Awaitable[T]]) -> T:
    """Run in virtual time, which jumps to the next timer."""
    clock = FakeClock()
    loop = WorldLoop(clock)

    async def ran() -> T:
        return await work()

    with world_time(clock, 0):
        task = loop.create_task(ran())
        loop.run_ready()
        while not task.done():
            clock.advance(max(loop.next_timer - clock.monotonic(), 1e-6))
            loop.run_ready()
        loop.abandon()
        result: T = task.result()
        return result


@pytest.mark.parametrize("delay", [0.05, 0.15, 0.25, 0.4, 0.9])
def test_a_false_master_that_answers_first_does_not_win(delay: float) -> None:
    async def work() -> None:
        delays = {"n1:1": delay, "n2:1": delay + 0.05}
        connection = Delayed({**ELECTED, "n0:1": FRESH}, delays)
        assert (await connection.master()).endpoint == "n1:1"
        assert connection.at == "n1:1"
        assert list(connection.topology.contradictions) == ["n0"]
        await connection.close()

    in_time(work)


def test_nor_does_the_leader_of_another_elected_cluster() -> None:
    async def work() -> None:
        other = answer("n0:1", 9, "Y", leads=True)
        connection = Delayed({**ELECTED, "n0:1": other}, {"n1:1": 0.4, "n2:1": 0.4})
        assert (await connection.master()).endpoint == "n1:1"
        await connection.close()

    in_time(work)


@pytest.mark.parametrize("uuid", [CONFIGURED, "X", ""])
@pytest.mark.parametrize("gone", ["", "n2:1"])
def test_a_cluster_of_which_every_node_answers_or_refuses_costs_no_wait(
    uuid: str | None, gone: str
) -> None:
    async def work() -> None:
        answers = {at: answer(at, 5, uuid, leads=at == "n0:1") for at in SEEDS if at != gone}
        connection = Delayed(answers, {"n1:1": 0.01})
        assert await connection.took() == pytest.approx(0.01, abs=0.001)
        assert connection.at == "n0:1"
        await connection.close()

    in_time(work)


@pytest.mark.parametrize("uuid", [CONFIGURED, "X", ""])
def test_a_silent_seed_costs_the_wait_once(uuid: str | None) -> None:
    async def work() -> None:
        answers = {at: answer(at, 5, uuid, leads=at == "n0:1") for at in SEEDS}
        connection = Delayed(answers, {"n2:1": SILENT})
        assert await connection.took() == pytest.approx(OTHERS_S, abs=0.001)
        for _ in range(3):
            assert await connection.took() == pytest.approx(SETTLED_S, abs=0.001)
            await asyncio.sleep(7)  # beside what the client asks by itself
        await connection.close()

    in_time(work)


def test_a_node_that_only_the_answers_name_costs_what_it_did() -> None:
    async def work() -> None:
        master = answer("n0:1", leads=True)
        master.nodes.add(node_id="n3", role=common_pb2.SLAVE, endpoint="n3:1")
        answers = {"n0:1": master, "n1:1": answer("n1:1"), "n2:1": answer("n2:1")}
        connection = Delayed(answers, {"n3:1": SILENT})
        assert await connection.took() == pytest.approx(SETTLED_S, abs=0.001)
        await connection.close()

    in_time(work)


@pytest.mark.parametrize("first_heard", [0.0, 3.0, 40.0, 1_000.0])
def test_a_client_that_has_heard_nobody_else_finds_the_cluster_by_itself(
    first_heard: float,
) -> None:
    """Its program does nothing that asks who the master is."""

    async def work() -> None:
        delays = {"n1:1": SILENT, "n2:1": SILENT}
        connection = Delayed({**ELECTED, "n0:1": FRESH}, delays)
        stray = await connection.master()
        assert stray.endpoint == "n0:1"
        epochs = connection.epochs
        await asyncio.sleep(first_heard)
        connection.delays = {"n1:1": 0.4, "n2:1": 0.5}
        await asyncio.sleep(64)
        assert connection.at == "n1:1"
        assert connection.epochs is not epochs
        assert (await connection.master()).endpoint == "n1:1"
        assert (connection.master_epoch, connection.epochs.value) == (5, 5)
        assert connection._listener is None
        await connection.close()

    in_time(work)


def test_it_looks_again_where_nodes_refused_too() -> None:
    """They are just being restarted."""

    async def work() -> None:
        connection = Delayed({"n0:1": FRESH}, {})
        assert (await connection.master()).endpoint == "n0:1"
        connection.answers.update(ELECTED)
        await asyncio.sleep(1.5)
        assert connection.at == "n1:1"
        await connection.close()

    in_time(work)


def test_epochs_of_a_stranger_are_not_compared_with_those_of_the_cluster() -> None:
    async def work() -> None:
        high = answer("n0:1", 9, CONFIGURED, leads=True)
        connection = Delayed({**ELECTED, "n0:1": high}, {"n1:1": SILENT, "n2:1": SILENT})
        await connection.master()
        late: Any = connection.epochs
        connection.delays = {}
        await connection.refresh()
        late.heard(9)
        assert (await connection.master()).endpoint == "n1:1"
        assert connection.epochs.value == 5
        await connection.close()

    in_time(work)


def test_a_look_in_the_background_ends_with_the_client() -> None:
    async def work() -> None:
        connection = Delayed({"n0:1": FRESH}, {"n1:1": SILENT})
        await connection.refresh()
        listener = connection._listener
        assert listener is not None
        await connection.close()
        await asyncio.wait([listener])
        assert listener.cancelled()

    in_time(work)

"""The fake passes the suite, and its faults are those of a network."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from conformance.coordinator_suite import CoordinatorSuite, put, told, value_of
from fakes.fake_coordinator import CoordinatorWorld, FakeCoordinator, Fault
from tandemlog_server.ha.coordinator.coordinator import Coordinator
from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorUnavailableError,
    LeaseLostError,
    UnknownOutcomeError,
)
from tandemlog_server.ha.coordinator.values import KeyRange, Put, Txn, absent, unchanged

KEY = b"k"


class OpenedFake:
    def __init__(self) -> None:
        self.world = CoordinatorWorld()

    def client(self) -> Coordinator:
        return self.world.client()

    def key(self, name: str) -> bytes:
        return b"/" + name.encode()

    async def compact(self) -> None:
        self.world.compact(self.world.machine.revision)

    async def until(self, what: str, true: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(600):
            if await true():
                return
            self.world.advance(0.1)
        raise AssertionError(what)


class TestFakeCoordinator(CoordinatorSuite):
    @pytest.fixture
    def opened(self) -> OpenedFake:
        return OpenedFake()


@pytest.fixture
def client() -> FakeCoordinator:
    return CoordinatorWorld().client()


CREATE = Txn((absent(KEY),), (Put(KEY, b"1"),))


@pytest.mark.parametrize(
    ("fault", "at_once", "delivered"),
    [
        (Fault.LOST_ANSWER, b"1", b"1"),
        (Fault.LOST_REQUEST, None, None),
        (Fault.DELAYED, None, b"1"),
    ],
)
async def test_unknown_outcomes(
    client: FakeCoordinator, fault: Fault, at_once: bytes | None, delivered: bytes | None
) -> None:
    client.faults.append(fault)
    with pytest.raises(UnknownOutcomeError):
        await client.txn(CREATE)
    assert await value_of(client, KEY) == at_once
    client.world.deliver()
    assert await value_of(client, KEY) == delivered


async def test_a_newer_revision_obsoletes_what_is_delayed(client: FakeCoordinator) -> None:
    revision = await put(client, KEY, b"1")
    client.faults.append(Fault.DELAYED)
    with pytest.raises(UnknownOutcomeError):
        await client.txn(Txn((unchanged(KEY, revision),), (Put(KEY, b"late"),)))
    assert (await client.txn(Txn((unchanged(KEY, revision),), (Put(KEY, b"2"),)))).succeeded
    client.world.deliver()
    assert await value_of(client, KEY) == b"2"


async def test_what_is_not_sent_is_unavailable(client: FakeCoordinator) -> None:
    client.faults.extend((Fault.UNREACHABLE, None, Fault.LOST_ANSWER))
    with pytest.raises(CoordinatorUnavailableError):
        await client.txn(CREATE)
    assert (await client.txn(CREATE)).succeeded
    with pytest.raises(CoordinatorUnavailableError):
        await client.get(KEY)
    client.reachable = False
    for _ in range(2):
        with pytest.raises(CoordinatorUnavailableError):
            await client.get(KEY)


async def test_a_renewal_whose_answer_is_lost_was_one(client: FakeCoordinator) -> None:
    world = client.world
    lease = await client.grant_lease(2)
    assert lease.t_sent == world.clock.monotonic()
    world.advance(1.5)
    client.faults.append(Fault.LOST_ANSWER)
    with pytest.raises(CoordinatorUnavailableError):
        await client.keep_alive(lease.lease_id)
    world.advance(1.5)
    await client.keep_alive(lease.lease_id)
    world.advance(2.1)
    with pytest.raises(LeaseLostError):
        await client.keep_alive(lease.lease_id)


async def test_watches_of_who_is_cut_off_hear_it_later(client: FakeCoordinator) -> None:
    other = client.world.client()
    async with aclosing(client.watch(KeyRange(KEY), 2)) as watch:
        waiting = asyncio.create_task(told(watch, 2))
        client.reachable = False
        await put(other, KEY, b"1")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        client.reachable = True
        await put(other, KEY, b"2")
        assert await waiting == [(KEY, b"1"), (KEY, b"2")]


async def test_a_restart_keeps_everything_and_renews_leases(client: FakeCoordinator) -> None:
    world = client.world
    lease = await client.grant_lease(2)
    await put(client, KEY, b"1", lease.lease_id)
    world.advance(1.5)
    world.restart()
    world.advance(1.5)
    assert await value_of(client, KEY) == b"1"
    world.advance(0.6)
    assert await value_of(client, KEY) is None


async def test_two_worlds_with_the_same_calls_are_equal() -> None:
    """Nothing in it is random."""

    async def played() -> list[object]:
        world = CoordinatorWorld()
        clients = [world.client() for _ in range(3)]
        seen: list[object] = []
        faults = itertools.cycle([None, Fault.LOST_ANSWER, None, Fault.DELAYED])

        async def act(client: FakeCoordinator, name: bytes) -> None:
            lease = await client.grant_lease(60)
            for number in range(6):
                client.faults.append(next(faults))
                try:
                    seen.append(await put(client, name, b"%d" % number, lease.lease_id))
                except UnknownOutcomeError as error:
                    seen.append(str(error))
                world.advance(0.3)
                world.deliver()

        await asyncio.gather(*(act(each, b"%d" % n) for n, each in enumerate(clients)))
        return [*seen, await clients[0].range(KeyRange(b"0", b"9"))]

    assert await played() == await played()

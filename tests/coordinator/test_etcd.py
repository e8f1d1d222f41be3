"""The client against a real etcd of three members: the suite, and what members do to a client."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing

import pytest
import pytest_asyncio
from grpc import aio

from conformance.coordinator_suite import CoordinatorSuite, put, told, value_of
from helpers.coordinators import EtcdProcesses, etcd_or_skip, paused
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.ha.coordinator.coordinator import Coordinator  # noqa: TC001 - in an annotation that runs
from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorUnavailableError,
    UnknownOutcomeError,
)
from tandemlog_server.ha.coordinator.etcd_client import EtcdCoordinator
from tandemlog_server.ha.coordinator.methods import COMPACT
from tandemlog_server.ha.coordinator.options import CoordinatorOptions
from tandemlog_server.ha.coordinator.values import KeyRange, Put, Txn, absent

pytestmark = pytest.mark.cluster

PATIENCE_S = 60.0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcesses]:
    etcd_or_skip()
    with EtcdProcesses(tmp_path_factory.mktemp("etcd"), 3) as processes:
        for each in processes.members:
            each.wait_ready()
        yield processes


class OpenedEtcd:
    """Each test has a prefix of its own."""

    def __init__(self, etcd: EtcdProcesses) -> None:
        self.etcd = etcd
        self.prefix = b"/%d/" % next(_numbers)
        self.clients: list[Coordinator] = []

    def client(self, first: int = 0, count: int = 3, **options: float) -> EtcdCoordinator:
        """Of `count` members, from `first` on."""
        members = (*self.etcd.endpoints, *self.etcd.endpoints)[first : first + count]
        settings = {"attempt_s": 3.0, "budget_s": 15.0, "probe_s": 0.5, **options}
        made = EtcdCoordinator(CoordinatorOptions(members, **settings))  # type: ignore[arg-type]
        self.clients.append(made)
        return made

    def key(self, name: str) -> bytes:
        return self.prefix + name.encode()

    async def compact(self) -> None:
        revision = (await self.client().get(b"k")).revision
        async with aio.insecure_channel(self.etcd.endpoints[0]) as channel:
            call = channel.unary_unary(
                COMPACT.path,
                request_serializer=pb.CompactionRequest.SerializeToString,
                response_deserializer=pb.CompactionResponse.FromString,
            )
            await call(pb.CompactionRequest(revision=revision, physical=True), timeout=30)

    async def until(self, what: str, true: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not await true():
            assert time.monotonic() < deadline, what
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def opened(etcd: EtcdProcesses) -> AsyncIterator[OpenedEtcd]:
    made = OpenedEtcd(etcd)
    yield made
    for each in made.clients:
        await each.close()


class TestEtcd(CoordinatorSuite):
    """Three members."""


async def test_unknown_outcomes_of_a_paused_member(opened: OpenedEtcd) -> None:
    """What was sent may be applied later, and is never sent twice."""
    client = opened.client(count=1, attempt_s=0.5, budget_s=1.0)
    keys = [opened.key(f"k{number}") for number in range(4)]

    async def answers() -> bool:
        try:
            await client.get(keys[0])
        except CoordinatorUnavailableError:
            return False
        return True

    await opened.until("a connection", answers)
    with paused(opened.etcd.members[0]):
        for key in keys:
            # those after the first may be known not to have been sent
            with pytest.raises((UnknownOutcomeError, CoordinatorUnavailableError)) as failed:
                await client.txn(Txn((absent(key),), (Put(key, b"1"),)))
            if key == keys[0]:
                assert failed.type is UnknownOutcomeError
        with pytest.raises(CoordinatorUnavailableError):
            await client.get(keys[0])

    await opened.until("the member to answer again", answers)
    patient = opened.client(count=1, attempt_s=15.0, budget_s=30.0)
    for key in keys:
        # whatever became of the first request, this one finds out
        result = await patient.txn(Txn((absent(key),), (Put(key, b"2"),)))
        kv = (await patient.get(key)).kv
        assert kv is not None
        assert (kv.value, kv.version) == (b"2" if result.succeeded else b"1", 1)


async def test_calls_go_elsewhere_when_a_member_is_killed(opened: OpenedEtcd) -> None:
    client, key = opened.client(), opened.key("k")
    lease = await client.grant_lease(60)
    await put(client, key, b"1", lease.lease_id)
    opened.etcd.members[0].kill()
    try:
        assert await value_of(client, key) == b"1"
        await put(client, key, b"2")
        assert (await client.keep_alive(lease.lease_id)).t_sent > lease.t_sent
        await client.revoke_lease(lease.lease_id)
    finally:
        opened.etcd.members[0].start().wait_ready()
    assert await value_of(opened.client(count=1), key) == b"2"


async def test_a_watch_leaves_a_paused_member_and_tells_all(opened: OpenedEtcd) -> None:
    client, other, key = opened.client(attempt_s=1.0), opened.client(first=1), opened.key("k")
    start = await put(client, key, b"0")
    async with aclosing(client.watch(KeyRange(key), start)) as watch:
        assert await told(watch, 1) == [(key, b"0")]
        with paused(opened.etcd.members[0]):
            for number in (b"1", b"2", b"3"):
                await put(other, key, number)
            assert await told(watch, 3) == [(key, b"1"), (key, b"2"), (key, b"3")]
            assert await value_of(client, key) == b"3"


async def test_a_member_without_quorum_says_so_at_once(opened: OpenedEtcd) -> None:
    """Without `hasleader` it would let the request wait until its deadline."""
    client, key = opened.client(first=2, count=1), opened.key("k")
    watcher = opened.client(first=2, count=1)
    start = await put(client, key, b"1")
    watch = watcher.watch(KeyRange(key), start + 1)
    waiting = asyncio.create_task(told(watch, 1))
    alone = opened.client(first=2, count=1, attempt_s=5.0, budget_s=5.0)
    for each in opened.etcd.members[:2]:
        each.kill()
    try:

        async def says_so() -> bool:
            with pytest.raises(CoordinatorUnavailableError) as failed:
                await alone.get(key)
            return "no leader" in str(failed.value)

        await opened.until("the member to say that it has no leader", says_so)
        with pytest.raises(CoordinatorUnavailableError, match="no leader"):
            await alone.txn(Txn((absent(key),), (Put(key, b"2"),)))
        with pytest.raises(CoordinatorUnavailableError, match="no leader"):
            await alone.keep_alive(1)
    finally:
        for each in opened.etcd.members[:2]:
            each.start()
        for each in opened.etcd.members[:2]:
            each.wait_ready()
    await put(client, key, b"3")
    assert await waiting == [(key, b"3")]
    await watch.aclose()

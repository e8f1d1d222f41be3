"""Real nodes that do not belong to the cluster, among the endpoints that a client was given."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from fakes.replicas import eventually
from tandemlog import AsyncAdmin, AsyncProducer, Message, ProducerOptions
from tandemlog.cluster.belief import CONFIGURED
from tandemlog.testing import AsyncCluster
from tandemlog_server.cli.cluster.verdict import Level, judge

SLOW_S = 0.4
OPTIONS = ProducerOptions(linger_ms=0, delivery_timeout_ms=60_000)


async def led_by_n0(cluster: AsyncCluster) -> None:
    for _ in range(20):
        if await cluster.master() == "n0":
            return
        await cluster.stop_master()
        await cluster.restart()
    raise AssertionError("n0 was never elected")


async def put(endpoints: Sequence[str], *bodies: bytes) -> None:
    async with AsyncProducer(list(endpoints), OPTIONS) as producer:
        for body in bodies:
            await (await producer.send(Message("orders", body, queue_id=0)))


async def held(cluster: AsyncCluster) -> list[bytes]:
    return [each.body for each in await cluster.messages("orders")]


@asynccontextmanager
async def far_away(
    endpoints: Sequence[str], reached: asyncio.Event | None = None
) -> AsyncIterator[list[str]]:
    """The same nodes, each connection to which takes SLOW_S to open; silent until they are
    `reached`."""
    tasks: list[asyncio.Task[None]] = []

    async def pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                target.write(data)
        finally:
            target.close()

    async def forward(to: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (asyncio.sleep(SLOW_S) if reached is None else reached.wait())
        host, _, port = to.rpartition(":")
        there = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))

    def accept(to: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.create_task(forward(to, reader, writer)))

    servers = [await asyncio.start_server(partial(accept, to), "127.0.0.1", 0) for to in endpoints]
    yield [f"127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in servers]
    for server in servers:
        server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_process_with_the_id_of_the_master_gets_no_put_and_is_named() -> None:
    """An old machine with a fresh disk and no [coordinator], still in the clients' lists."""
    topics = {"orders": 1}
    async with AsyncCluster(topics, nodes=3) as cluster, AsyncCluster(topics) as stray:
        await led_by_n0(cluster)
        assert stray.nodes == ["n0"]
        for number in range(6):
            first = [stray.endpoint, *cluster.endpoints]
            await put(first if number % 2 else first[::-1], b"%d" % number)
            async with AsyncAdmin(first) as admin:
                topology = await admin.cluster()
            assert topology.authority is not None
            assert topology.authority.endpoint == cluster.endpoints[0]
            verdict = judge(topology)
            assert verdict.level is Level.CRITICAL
            assert f"n0@{stray.endpoint}: it is a master" in verdict.line
            assert f"the id of n0, which is at {cluster.endpoints[0]}: stop it" in verdict.line
        assert await held(cluster) == [b"%d" % number for number in range(6)]
        assert await held(stray) == []


async def test_a_node_of_another_elected_cluster_that_uses_the_same_names() -> None:
    topics = {"orders": 1}
    async with AsyncCluster(topics, nodes=3) as cluster, AsyncCluster(topics, nodes=3) as other:
        await other.stop_master()  # its epoch is the higher one
        await other.restart()
        for number in range(3):
            await put([other.endpoints[number], *cluster.endpoints], b"%d" % number)
        assert await held(cluster) == [b"0", b"1", b"2"]
        assert await held(other) == []


async def test_a_false_master_that_answers_first() -> None:
    """The disk of n0 is lost, and it was started without [coordinator]; the others are far away."""
    topics = {"orders": 1}
    async with AsyncCluster(topics, nodes=3) as cluster, AsyncCluster(topics) as stray:
        await cluster.stop_node("n0")
        await cluster.master()
        async with far_away(cluster.endpoints[1:]) as there:
            for number in range(3):
                await put([stray.endpoint, *there], b"%d" % number)
        assert await held(cluster) == [b"0", b"1", b"2"]
        assert await held(stray) == []


async def test_a_producer_that_has_heard_the_false_master_alone_leaves_it() -> None:
    """Its stream has no fault that would make it look again. What it was told before is lost: it
    could not know better."""
    topics = {"orders": 1}
    async with AsyncCluster(topics, nodes=3) as cluster, AsyncCluster(topics) as stray:
        await cluster.stop_node("n0")
        await cluster.master()
        reached = asyncio.Event()
        async with (
            far_away(cluster.endpoints[1:], reached) as there,
            AsyncProducer([stray.endpoint, *there], OPTIONS) as producer,
        ):
            await (await producer.send(Message("orders", b"too early", queue_id=0)))
            assert producer._core is not None
            connection = producer._core.connection
            assert connection.topology.origin == CONFIGURED
            reached.set()
            async with asyncio.timeout(120):
                await eventually(lambda: connection.topology.origin != CONFIGURED)
            for number in range(3):
                await (await producer.send(Message("orders", b"%d" % number, queue_id=0)))
        assert await held(cluster) == [b"0", b"1", b"2"]
        assert await held(stray) == [b"too early"]

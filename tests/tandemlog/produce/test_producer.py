"""The asyncio producer against real gRPC servers that fail on demand."""

import asyncio
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster
from fakes.fake_log import RefusedError
from fakes.fake_node import Fault
from tandemlog import errors
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog.v1 import common_pb2

QUICK = ConnectionOptions(retry_timeout_ms=2_000, discovery_timeout_ms=500)


def options(**changes: object) -> ProducerOptions:
    settings: dict[str, object] = {"linger_ms": 0, "connection": QUICK}
    return ProducerOptions(**(settings | changes))  # type: ignore[arg-type]


async def send_all(producer: AsyncProducer, count: int, **fields: object) -> list[int]:
    """Sends "0", "1", ... each in a request of its own; their queue offsets."""
    futures = []
    for number in range(count):
        message = Message("orders", b"%d" % number, queue_id=0, **fields)  # type: ignore[arg-type]
        futures.append(await producer.send(message))
        await asyncio.sleep(0)
    return [result.queue_offset for result in await asyncio.gather(*futures)]


def numbers(cluster: FakeCluster) -> list[int]:
    return [int(body) for body in cluster.log.bodies("orders", 0)]


async def test_messages_get_their_places() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 4)
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            future = await producer.send(
                Message("orders", b"hello", keys=["a", "b"], tags="x", properties={"p": "1"})
            )
            result = await future
            record = cluster.log.decoded()[0]
            assert (result.topic, result.queue_id) == ("orders", record.queue_id)
            assert (result.queue_offset, result.physical_offset) == (0, record.physical_offset)
            assert result.store_timestamp == record.store_timestamp
            assert result.msg_id == record.msg_id
            assert (record.keys, record.tags, record.properties["p"]) == ("a b", "x", "1")
            assert not result.duplicate


async def test_small_messages_share_a_request() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 4)
        cluster.log.create_topic("bills", 2)
        cluster.master.keep_requests = True
        async with AsyncProducer(cluster.endpoints, options(linger_ms=1_000)) as producer:
            futures = [
                await producer.send(Message("orders" if number % 2 else "bills", b"%d" % number))
                for number in range(100)
            ]
            await producer.flush()
            assert all(future.done() for future in futures)
        assert len(cluster.master.requests) == 1
        assert sorted(cluster.master.requests[0].topics) == ["bills", "orders"]


async def test_equal_sharding_keys_stay_together_and_in_order() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 4)
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            futures = [
                await producer.send(Message("orders", b"%d" % n, sharding_key=f"key{n % 7}"))
                for n in range(70)
            ]
            results = await asyncio.gather(*futures)
        for key in range(7):
            assert len({result.queue_id for result in results[key::7]}) == 1
        for queue in range(4):
            stored = [int(body) for body in cluster.log.bodies("orders", queue)]
            assert stored == sorted(stored)


@pytest.mark.parametrize(
    "fault",
    [
        Fault.DROP_BEFORE,
        Fault.DROP_AFTER,
        Fault.ANSWER_TWICE,
        Fault.UNKNOWN,
        RefusedError(common_pb2.BUSY),
        RefusedError(common_pb2.NOT_IN_SYNC),
        RefusedError(common_pb2.SHUTTING_DOWN),
    ],
    ids=str,
)
async def test_what_passes_is_retried_and_stored_once(fault: Fault | RefusedError) -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            cluster.master.faults.extend([fault, Fault.ANSWER_TWICE, fault])
            assert await send_all(producer, 20) == list(range(20))
        assert numbers(cluster) == list(range(20))


async def test_the_same_epoch_and_other_messages_are_refused() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        job = options(producer_id="job-17", epoch=4)
        async with AsyncProducer(cluster.endpoints, job) as producer:
            await send_all(producer, 1)
        async with AsyncProducer(cluster.endpoints, job) as producer:
            future = await producer.send(Message("orders", b"another"))
            with pytest.raises(errors.SequenceConflictError):
                await future
        assert numbers(cluster) == [0]


async def test_a_retry_is_the_same_byte_by_byte() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        cluster.master.keep_requests = True
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            cluster.master.faults.extend([Fault.DROP_BEFORE, Fault.DROP_AFTER])
            await (await producer.send(Message("orders", b"0", keys="k")))
        requests = [request.SerializeToString() for request in cluster.master.requests]
        assert len(requests) == 3
        assert len(set(requests)) == 1


async def test_a_silent_node_is_given_up_and_nothing_stored_twice() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options(answer_timeout_ms=100)) as producer:
            cluster.master.faults.append(Fault.SILENCE)
            future = await producer.send(Message("orders", b"0"))
            assert (await future).duplicate
        assert numbers(cluster) == [0]


async def test_a_silent_master_under_its_other_name_is_no_other_master() -> None:
    """The caller names it as it likes, the slave as the nodes do; then the first name is silent."""
    async with FakeCluster(slaves=1) as cluster:
        cluster.log.create_topic("orders", 1)
        ours = cluster.master.endpoint.replace("127.0.0.1", "localhost")
        async with AsyncProducer(ours, options()) as producer:
            assert producer._core is not None
            asked = producer._core.connection
            at = (await asked.master()).endpoint
            describe, looked = asked._describe_all, asyncio.Event()

            async def only_the_other_name(endpoints: Any) -> Any:
                answers, unanswered = await describe(endpoints)
                if len(answers) == 3:
                    looked.set()
                answers.pop(at, None)
                return answers, unanswered

            asked._describe_all = only_the_other_name  # type: ignore[method-assign]
            cluster.master.faults.append(Fault.ANSWER_LATE)
            future = await producer.send(Message("orders", b"0"))
            async with asyncio.timeout(10):
                await looked.wait()
            await asyncio.wait([future], timeout=0.1)
            master = asked.topology.authority
            assert master is not None
            assert master.endpoint != at
            cluster.master.late.set()
            assert not (await future).duplicate
        assert cluster.master.streams == 1


async def test_a_late_answer_is_an_answer() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            cluster.master.faults.append(Fault.ANSWER_LATE)
            future = await producer.send(Message("orders", b"0"))
            await asyncio.wait([future], timeout=0.05)
            assert not future.done()
            cluster.master.late.set()
            assert not (await future).duplicate


async def test_a_new_master_is_found_through_any_node() -> None:
    async with FakeCluster(slaves=2) as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.nodes["n2"].endpoint, options()) as producer:
            await send_all(producer, 5)
            cluster.nodes["n0"].faults.append(Fault.DROP_AFTER)
            futures = [await producer.send(Message("orders", b"%d" % n)) for n in range(5, 10)]
            cluster.promote("n1")
            await cluster.nodes["n0"].stop()
            await asyncio.gather(*futures)
            await cluster.nodes["n0"].start()
            cluster.promote("n0")
            await (await producer.send(Message("orders", b"10")))
        assert numbers(cluster) == list(range(11))


async def test_a_master_that_lacks_replicas_is_left_for_one_of_a_newer_epoch() -> None:
    """It was deposed while it was cut off from the others: it does not know, and answers."""
    async with FakeCluster(slaves=1) as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            await send_all(producer, 5)
            cluster.nodes["n0"].epoch = 0
            cluster.nodes["n0"].faults.extend([RefusedError(common_pb2.NOT_IN_SYNC)] * 10_000)
            cluster.promote("n1")
            async with asyncio.timeout(10):
                for number in range(5, 10):
                    await (await producer.send(Message("orders", b"%d" % number)))
        assert numbers(cluster) == list(range(10))


@pytest.mark.parametrize("columns", [False, True])
async def test_what_a_deposed_master_acknowledges_is_asked_of_the_new_one(*, columns: bool) -> None:
    """Its stream has no fault, and the client has heard of the election meanwhile."""
    async with FakeCluster(slaves=1) as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            await send_all(producer, 1)
            old = cluster.nodes["n0"]
            old.epoch, old._master_only = cluster.epoch, lambda: None  # type: ignore[method-assign]
            cluster.promote("n1")
            assert producer._core is not None
            await producer._core.connection.refresh()
            if columns:
                assert (await producer.send_many("orders", [b"1", b"2"])).count == 2
            else:
                assert (await (await producer.send(Message("orders", b"1")))).duplicate
            assert (old.streams, cluster.nodes["n1"].streams) == (1, 1)
        assert numbers(cluster) == [0, 1, 2][: 2 + columns]


async def test_a_restarted_master_gets_what_it_has_not_answered() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            await send_all(producer, 3)
            await cluster.master.stop()
            futures = [await producer.send(Message("orders", b"%d" % n)) for n in range(3, 6)]
            await asyncio.wait(futures, timeout=0.1)
            assert not any(future.done() for future in futures)
            await cluster.master.start()
            await asyncio.gather(*futures)
        assert numbers(cluster) == list(range(6))


async def test_no_master_for_too_long_says_that_nothing_was_stored() -> None:
    """Not "unknown": the only node that had the request refused it, and no other one got it."""
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options(delivery_timeout_ms=3_000)) as producer:
            await send_all(producer, 1)
            cluster.promote("")
            future = await producer.send(Message("orders", b"1"))
            with pytest.raises(errors.NoMasterError, match="delivery_timeout_ms"):
                await future
            cluster.promote("n0")
            assert await send_all(producer, 1) == [1]
        assert numbers(cluster) == [0, 0]


async def test_an_outcome_that_nobody_knows_is_unknown() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        limits = options(delivery_timeout_ms=2_000)
        async with AsyncProducer(cluster.endpoints, limits) as producer:
            cluster.master.faults.append(Fault.SILENCE)
            future = await producer.send(Message("orders", b"0"))
            with pytest.raises(errors.OutcomeUnknownError, match="may or may not"):
                await future


async def test_without_idempotence_a_broken_connection_is_unknown_and_not_retried() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options(idempotent=False)) as producer:
            assert producer.producer_id is None
            cluster.master.faults.extend([RefusedError(common_pb2.BUSY), Fault.DROP_AFTER])
            future = await producer.send(Message("orders", b"0"))
            with pytest.raises(errors.OutcomeUnknownError):
                await future
            assert await send_all(producer, 1) == [1]
        assert numbers(cluster) == [0, 0]
        assert "__TL_SEQ" not in cluster.log.decoded()[0].properties


async def test_a_message_that_a_node_refuses_fails_alone() -> None:
    async with FakeCluster() as cluster:
        for topic in ("orders", "gone"):
            cluster.log.create_topic(topic, 1)
        async with AsyncProducer(cluster.endpoints, options(linger_ms=1_000)) as producer:
            for topic in ("orders", "gone"):
                await producer.send(Message(topic, b"first"))
            await producer.flush()
            del cluster.log.topics["gone"]
            futures = [
                await producer.send(Message("gone" if n == 2 else "orders", b"%d" % n))
                for n in range(5)
            ]
            await producer.flush()
            with pytest.raises(errors.UnknownTopicError, match="gone"):
                await futures.pop(2)
            results = await asyncio.gather(*futures)
            assert [result.queue_offset for result in results] == [1, 2, 3, 4]
            with pytest.raises(errors.UnknownTopicError):
                await producer.send(Message("gone", b""))
        assert cluster.log.bodies("orders") == [b"first", b"0", b"1", b"3", b"4"]


async def test_a_refusal_costs_what_follows_nothing() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            await send_all(producer, 1)
            cluster.master.faults.append(RefusedError(common_pb2.BAD_RECORD, "no good"))
            futures = []
            for number in range(1, 6):
                futures.append(await producer.send(Message("orders", b"%d" % number)))
                await asyncio.sleep(0)
            with pytest.raises(errors.BadRecordError, match="no good"):
                await futures[0]
            await asyncio.gather(*futures[1:])
        stored = numbers(cluster)
        assert stored == sorted(set(stored))
        assert stored[0] == 0
        assert stored[-1] == 5


async def test_a_forgotten_producer_begins_a_new_epoch() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            await send_all(producer, 3)
            cluster.log.producers.clear()
            assert await send_all(producer, 3) == [3, 4, 5]
            assert producer.producer_id is not None
            assert cluster.log.producers[producer.producer_id].epoch == 1


async def test_what_a_node_has_forgotten_is_unknown_if_an_answer_was_lost() -> None:
    """Sent again as new it would be stored twice."""
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            await send_all(producer, 3)
            cluster.master.faults.extend(
                [Fault.DROP_AFTER, RefusedError(common_pb2.UNKNOWN_PRODUCER)]
            )
            future = await producer.send(Message("orders", b"3"))
            with pytest.raises(errors.OutcomeUnknownError, match="may or may not be stored"):
                await future
            assert await send_all(producer, 2) == [4, 5]
        assert cluster.log.bodies("orders", 0) == [b"0", b"1", b"2", b"3", b"0", b"1"]


async def test_a_named_producer_takes_over_and_fences_the_old_one() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        named = options(producer_id="billing")
        async with AsyncProducer(cluster.endpoints, named) as old:
            await send_all(old, 2)
            async with AsyncProducer(cluster.endpoints, named) as new:
                await send_all(new, 2)
                assert cluster.log.producers["billing"].epoch == 1
                future = await old.send(Message("orders", b"9"))
                with pytest.raises(errors.ProducerFencedError):
                    await future
                with pytest.raises(errors.ProducerFencedError):
                    await old.send(Message("orders", b"9"))
        assert numbers(cluster) == [0, 1, 0, 1]


async def test_a_named_producer_that_must_start_again_looks_who_has_its_name() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints, options(producer_id="billing")) as old:
            await send_all(old, 2)
            async with AsyncProducer(cluster.endpoints, options(producer_id="billing")) as new:
                await send_all(new, 2)
                cluster.master.faults.append(RefusedError(common_pb2.UNKNOWN_PRODUCER))
                future = await old.send(Message("orders", b"9"))
                with pytest.raises(errors.ProducerFencedError, match="taken over"):
                    await future


async def test_the_same_epoch_and_messages_again_are_recognised() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        job = options(producer_id="job-17", epoch=4, linger_ms=1_000)
        for duplicate in (False, True):
            async with AsyncProducer(cluster.endpoints, job) as producer:
                futures = [await producer.send(Message("orders", b"%d" % n)) for n in range(5)]
                await producer.flush()
                results = [future.result() for future in futures]
                assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]
                assert {result.duplicate for result in results} == {duplicate}
        assert numbers(cluster) == [0, 1, 2, 3, 4]


async def test_back_pressure_waits_and_then_says_so() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        small = options(max_in_flight_bytes=2_000, max_block_ms=50, batch_bytes=500)
        async with AsyncProducer(cluster.endpoints, small) as producer:
            cluster.master.faults.append(Fault.ANSWER_LATE)
            message = Message("orders", b"x" * 100)
            futures = [await producer.send(message) for _ in range(8)]
            with pytest.raises(errors.BufferFullError, match="max_in_flight_bytes is 2000"):
                await producer.send(message)
            cluster.master.late.set()
            await asyncio.gather(*futures)
            futures = [await producer.send(message) for _ in range(50)]
            await producer.flush()
        assert len(cluster.log.records) == 58


async def test_a_put_may_ask_for_less_than_the_cluster_gives() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        cluster.master.keep_requests = True
        async with AsyncProducer(cluster.endpoints, options()) as producer:
            await (await producer.send(Message("orders", b""), wait=False))
            await (await producer.send(Message("orders", b"")))
        assert [request.durability for request in cluster.master.requests] == [1, 0]


async def test_closing_sends_what_is_there() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        producer = AsyncProducer(cluster.endpoints, options(linger_ms=10_000))
        await producer.open()
        future = await producer.send(Message("orders", b"0"))
        await producer.close()
        assert (await future).queue_offset == 0
        with pytest.raises(errors.ClientClosedError):
            await producer.send(Message("orders", b"0"))
        await producer.close()


async def test_closing_tells_what_is_not_known() -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        producer = AsyncProducer(cluster.endpoints, options(linger_ms=0))
        await producer.open()
        cluster.master.faults.append(Fault.SILENCE)
        future = await producer.send(Message("orders", b"0"))
        await asyncio.sleep(0.02)
        await producer.close(timeout_ms=50)
        with pytest.raises(errors.OutcomeUnknownError):
            await future


async def test_nobody_there_is_no_master() -> None:
    producer = AsyncProducer(
        "127.0.0.1:1", options(connection=ConnectionOptions(retry_timeout_ms=1))
    )
    with pytest.raises(errors.NoMasterError, match=r"127\.0\.0\.1:1 \(connection refused\)"):
        await producer.open()


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_bytes": 0},
        {"linger_ms": -1},
        {"max_in_flight_requests": 61},
        {"producer_id": "a b"},
        {"producer_id": "a", "idempotent": False},
        {"epoch": 1},
        {"delivery_timeout_ms": 1_800_001},
    ],
)
def test_settings_that_cannot_be(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        ProducerOptions(**changes)  # type: ignore[arg-type]

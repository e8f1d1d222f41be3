"""Whole requests under numbers of the caller's own: what Spark's sink is built on."""

import asyncio

import numpy as np
import pytest

from fakes.fake_cluster import FakeCluster
from tandemlog.cluster.connection import Connection
from tandemlog.errors import ClientClosedError, MessageTooLargeError, TandemlogError
from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.record.batch import RecordBatch
from tandemlog.produce.futures import SendFuture
from tandemlog.produce.request_pipeline import RequestPipeline
from tandemlog.put_answer import PutAnswer


async def opened(connection: Connection) -> RequestPipeline[SendFuture]:
    return await RequestPipeline.with_fixed_numbers(
        connection, "copy:1", 3, batch_bytes=1 << 20, answer_seconds=5, unique_ids=False
    )


def framed(sender: RequestPipeline[SendFuture], *bodies: bytes) -> RecordBatch:
    return sender.frame(
        bodies=ByteColumn.of(list(bodies)),
        topics=("t",),
        queue_topics=np.zeros(1, np.uint32),
        queue_ids=np.zeros(1, np.uint32),
        queue_indexes=np.zeros(len(bodies), np.uint16),
    )


async def outcome(
    sender: RequestPipeline[SendFuture], batch: RecordBatch, checksum: int
) -> PutAnswer | TandemlogError:
    """Of a request that is offered now."""
    done: asyncio.Future[PutAnswer | TandemlogError] = asyncio.get_running_loop().create_future()
    request = sender.request(
        batch,
        wait=True,
        checksum=checksum,
        acknowledged=done.set_result,
        failed=done.set_result,
    )
    assert sender.offer(request, 0)
    return await done


async def test_another_attempt_finds_what_is_stored_by_its_place() -> None:
    async with FakeCluster() as cluster, Connection(cluster.endpoints) as connection:
        cluster.log.create_topic("t", 1)
        for attempt in range(2):
            sender = await opened(connection)
            for checksum, bodies in enumerate([(b"a", b"b"), (b"c",)]):
                answer = await outcome(sender, framed(sender, *bodies), checksum)
                assert isinstance(answer, PutAnswer)
                assert answer.duplicate is bool(attempt)
            await sender.close(0)
        assert cluster.log.bodies("t") == [b"a", b"b", b"c"]


async def test_the_row_that_is_too_large_is_named() -> None:
    async with FakeCluster() as cluster, Connection(cluster.endpoints) as connection:
        sender = await opened(connection)
        with pytest.raises(MessageTooLargeError) as caught:
            framed(sender, b"x", bytes(connection.topology.max_message_size + 1))
        assert caught.value.record_index == 1
        await sender.close(0)


async def test_nothing_is_taken_behind_the_end() -> None:
    async with FakeCluster() as cluster, Connection(cluster.endpoints) as connection:
        cluster.log.create_topic("t", 1)
        sender = await opened(connection)
        await sender.close(0)
        with pytest.raises(ClientClosedError):
            await outcome(sender, framed(sender, b"a"), 0)

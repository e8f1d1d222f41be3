"""Requests that arrive at a node that does not lead: handed on, parked, repeated."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from fakes.inner_node import until
from fakes.messaging_client import a_client, a_node, message
from fakes.messaging_front import fronted
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.node.messaging.messaging_call import HANDED_ON, SERVICE
from tandemlog_server.node.node import Node
from tandemlog_server.node.pulls import dispatch_wait
from tandemlog_server.node.settings.listen_endpoints import usable
from tandemlog_server.node.settings.sections import TransactionsSection


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    quick = TransactionsSection(check_after_ms=1_000, check_interval_ms=1_000)
    async with a_node(tmp_path, transactions=quick) as node:
        yield node


async def test_what_is_the_masters_is_handed_on(node: Node) -> None:
    async with fronted(node, address=node.endpoints.rocketmq_grpc) as (front, client):
        assert (await client.send("T", b"1")).status.code == v2.OK
        (got,) = await client.receive("T")
        assert got.body == b"1"
        assert (await client.ack(got)).status.code == v2.OK
        assert (front.master.handed_on_total, front.master.repeated_total) == (3, 0)
        assert front.counts.numbers() == {
            ("SendMessage", "OK"): 1,
            ("ReceiveMessage", "OK"): 1,
            ("AckMessage", "OK"): 1,
        }


async def test_a_send_waits_for_a_master(node: Node) -> None:
    async with fronted(node) as (front, client):
        sending = asyncio.create_task(client.send("T", b"1"))
        await until(lambda: front.master.parked)
        front.cluster.address = node.endpoints.rocketmq_grpc
        assert (await sending).status.code == v2.OK


async def test_without_a_master_a_receive_is_in_vain_and_a_send_is_tried_again(
    node: Node,
) -> None:
    async with fronted(node, park_s=0.05) as (_, client):
        assert (await client.send("T", b"1")).status.code == v2.HA_NOT_AVAILABLE
        assert await client.receive("T") == []
        answer = await client.ask("Heartbeat", v2.HeartbeatRequest(), v2.HeartbeatResponse)
        assert answer.status.code == v2.OK


async def test_a_node_that_stops_keeps_nothing(node: Node) -> None:
    async with fronted(node) as (front, client):
        sending = asyncio.create_task(client.send("T", b"1"))
        await until(lambda: front.master.parked)
        front.server.answer_parked()
        assert (await sending).status.code == v2.HA_NOT_AVAILABLE


async def test_a_request_is_handed_on_once(node: Node) -> None:
    """Of two nodes that take each other for the master, the second one says no."""
    async with fronted(node, address=node.endpoints.rocketmq_grpc) as (front, _):
        headers = {HANDED_ON.replace("-", "_"): "1"}
        async with a_client(front.endpoint, **headers) as client:
            with pytest.raises(aio.AioRpcError) as refused:
                await client.send("T", b"1")
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert front.master.handed_on_total == 0


async def test_a_send_whose_answer_is_lost_is_stored_once(node: Node) -> None:
    """The first master stores the message and dies; the next one is asked with the mark."""
    swallowed: list[bytes] = []

    async def swallow(requests: AsyncIterator[bytes], context: Any) -> bytes:
        async for data in requests:
            swallowed.append(data)
            channel: Any = aio.insecure_channel(node.endpoints.rocketmq_grpc)
            async with channel:
                call = channel.unary_unary("/apache.rocketmq.v2.MessagingService/SendMessage")
                await call(data, metadata=(("x-mq-client-id", "c"),))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the master was killed")
        return b""

    handlers: dict[str, Any] = {"SendMessage": grpc.stream_unary_rpc_method_handler(swallow)}
    endpoint = usable("dying", "127.0.0.1:0")
    dying = aio.server()
    dying.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("apache.rocketmq.v2.MessagingService", handlers),)
    )
    dying.add_insecure_port(endpoint)
    await dying.start()
    async with fronted(node, address=endpoint) as (front, client):
        sending = asyncio.create_task(client.send("T", b"1"))
        await until(lambda: swallowed)
        front.cluster.address = node.endpoints.rocketmq_grpc
        assert (await sending).status.code == v2.OK
        assert front.master.repeated_total == 1
        assert len(await client.receive("T")) == 1
    await dying.stop(0)


async def test_a_master_that_was_replaced_is_not_waited_for(node: Node) -> None:
    """It is stopped (SIGSTOP), and its connection stays."""

    async def silent(requests: AsyncIterator[bytes], _: Any) -> bytes:
        async for _each in requests:
            await asyncio.Event().wait()
        return b""

    handlers: dict[str, Any] = {"SendMessage": grpc.stream_unary_rpc_method_handler(silent)}
    endpoint = usable("silent", "127.0.0.1:0")
    frozen = aio.server()
    frozen.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("apache.rocketmq.v2.MessagingService", handlers),)
    )
    frozen.add_insecure_port(endpoint)
    await frozen.start()
    async with fronted(node, address=endpoint) as (front, client):
        sending = asyncio.create_task(client.send("T", b"1"))
        await until(lambda: front.master.handed_on_total)
        front.cluster.address = node.endpoints.rocketmq_grpc
        assert (await sending).status.code == v2.OK
    await frozen.stop(0)


async def test_a_producer_of_a_slave_is_asked_about_its_transactions(node: Node) -> None:
    async with fronted(node) as (front, client):
        stream = client.telemetry()
        said = v2.Settings(client_type=v2.PRODUCER)
        said.publishing.topics.add(name="T")
        await stream.write(v2.TelemetryCommand(settings=said).SerializeToString())
        assert v2.TelemetryCommand.FromString(await stream.read()).HasField("settings")
        # a master is found later, and the producer notices nothing
        front.cluster.address = node.endpoints.rocketmq_grpc
        sent = await client.send("T", b"1", message_type=v2.TRANSACTION)
        async with asyncio.timeout(15):
            command = v2.TelemetryCommand.FromString(await stream.read())
        orphan = command.recover_orphaned_transaction_command
        assert orphan.transaction_id == sent.entries[0].transaction_id


async def test_a_producer_is_asked_again_after_its_relay_lost_the_connection(node: Node) -> None:
    """Another master begins, and the connection to the last one is closed below the relay."""
    async with fronted(node, address=node.endpoints.rocketmq_grpc) as (front, client):
        stream = client.telemetry()
        said = v2.Settings(client_type=v2.PRODUCER)
        said.publishing.topics.add(name="T")
        await stream.write(v2.TelemetryCommand(settings=said).SerializeToString())
        assert v2.TelemetryCommand.FromString(await stream.read()).HasField("settings")
        await client.send("T", b"1", message_type=v2.TRANSACTION)
        async with asyncio.timeout(15):
            await stream.read()
        other = usable("other", "127.0.0.1:0")
        front.cluster.address = other
        front.master.channel(other)
        await asyncio.gather(*front.master._closing)
        front.cluster.address = node.endpoints.rocketmq_grpc
        async with asyncio.timeout(15):
            command = v2.TelemetryCommand.FromString(await stream.read())
        assert command.HasField("recover_orphaned_transaction_command")


async def test_receives_that_wait_leave_room_for_what_others_send(node: Node) -> None:
    address = node.endpoints.rocketmq_grpc
    async with fronted(node, address=address, receives=2) as (front, client):
        await client.send("T", b"1")
        assert len(await client.receive("T")) == 1
        waiting = asyncio.create_task(client.receive("T", poll_s=4))
        await until(lambda: front.master._receives.held)
        (answer,) = await client.answers("T")
        assert answer.status.code == v2.TOO_MANY_REQUESTS
        assert (await client.send("T", b"2")).status.code == v2.OK
        assert len(await waiting) == 1
        sends, receives = (front.master.channel(address, receives=each) for each in (False, True))
        assert sends is not receives


async def test_what_a_client_of_a_slave_did_not_take_is_given_back_to_the_master(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client lives: its heartbeats would have the master renew these leases for hours."""
    # a busy machine may take longer than a second to dispatch what a send looks through
    monkeypatch.setattr(dispatch_wait, "DISPATCH_WAIT_S", 30.0)
    async with fronted(node, address=node.endpoints.rocketmq_grpc) as (front, client):
        for number in range(32):
            body = b"%02d" % number + b"x" * 90_000
            sent = message("T", body, message_id=f"ID{number}")
            assert (await client.send_all([sent])).status.code == v2.OK
        request = v2.ReceiveMessageRequest(
            group=v2.Resource(name="G"),
            message_queue=v2.MessageQueue(topic=v2.Resource(name="T")),
            batch_size=32,
            auto_renew=True,
        )
        receive: Any = client.channel.unary_stream(f"/{SERVICE}/ReceiveMessage")
        stream = receive(request.SerializeToString(), metadata=client.metadata)
        assert v2.ReceiveMessageResponse.FromString(await stream.read()).status.code == v2.OK
        await until(lambda: front.master.handed_on_total == 33)
        stream.cancel()
        await until(lambda: front.master.handed_on_total == 34)
        async with a_client(node.endpoints.rocketmq_grpc, "another") as other:
            taken = await other.receive("T", poll_s=1)
        assert taken, "they come at once, to whoever asks"
        assert all(each.system_properties.delivery_attempt == 1 for each in taken)

"""Clients of the 5.x API as a node knows them: settings, transactions, heartbeats, rights."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.inner_node import until
from fakes.messaging_client import DOOR, MessagingClient, a_client, a_node
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.node.access.access_file import parse_access
from tandemlog_server.node.messaging.renewed_leases import ALIVE_S, RenewedLeases, Who
from tandemlog_server.node.node import Node
from tandemlog_server.node.pulls.group_kind import MemberKind
from tandemlog_server.node.settings.sections import TransactionsSection
from tandemlog_server.node.settings.security_sections import SecuritySection
from tandemlog_server.rocketmq.messaging.signatures import signature_of

QUICK = TransactionsSection(check_after_ms=1_000, check_interval_ms=1_000)
DATE = "20260101T000000Z"
CLIENT = Who("", "client-1")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with a_node(tmp_path, transactions=QUICK) as node:
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[MessagingClient]:
    async with a_client(node.endpoints.rocketmq_grpc) as client:
        yield client


async def told(stream: Any) -> v2.TelemetryCommand:
    async with asyncio.timeout(10):
        return v2.TelemetryCommand.FromString(await stream.read())


async def say(stream: Any, settings: v2.Settings) -> None:
    await stream.write(v2.TelemetryCommand(settings=settings).SerializeToString())


def producer(*topics: str) -> v2.Settings:
    said = v2.Settings(client_type=v2.PRODUCER)
    said.publishing.topics.extend(v2.Resource(name=each) for each in topics)
    return said


async def end(
    client: MessagingClient, transaction_id: str, resolution: int
) -> v2.EndTransactionResponse:
    request = v2.EndTransactionRequest(
        topic=v2.Resource(name="T"),
        transaction_id=transaction_id,
        resolution=v2.TransactionResolution.ValueType(resolution),
    )
    answer: v2.EndTransactionResponse = await client.ask(
        "EndTransaction", request, v2.EndTransactionResponse
    )
    return answer


async def test_settings_are_answered_at_once(client: MessagingClient) -> None:
    stream = client.telemetry()
    await say(stream, producer("T"))
    answer = await told(stream)
    assert answer.status.code == v2.OK
    assert answer.settings.publishing.max_body_size == 100_000
    await say(stream, v2.Settings(client_type=v2.LITE_SIMPLE_CONSUMER))
    assert (await told(stream)).status.code == v2.UNRECOGNIZED_CLIENT_TYPE
    await stream.write(b"\xff")
    assert (await told(stream)).status.code == v2.BAD_REQUEST
    await stream.done_writing()
    assert await stream.code() is not None


async def test_a_transaction_is_committed_or_rolled_back(client: MessagingClient) -> None:
    ids = []
    for body in (b"1", b"2"):
        sent = await client.send("T", body, message_type=v2.TRANSACTION)
        ids.append(sent.entries[0].transaction_id)
    assert (await end(client, ids[0], v2.COMMIT)).status.code == v2.OK
    assert (await end(client, ids[1], v2.ROLLBACK)).status.code == v2.OK
    assert (await end(client, ids[1], v2.ROLLBACK)).status.code == v2.OK
    assert (await end(client, ids[1], v2.COMMIT)).status.code == v2.INVALID_TRANSACTION_ID
    assert (await end(client, "unknown", v2.COMMIT)).status.code == v2.INVALID_TRANSACTION_ID
    got = await client.receive("T")
    assert [each.body for each in got] == [b"1"]


async def test_a_half_that_is_sent_again_is_one_transaction(client: MessagingClient) -> None:
    sent = [await client.send("T", b"1", message_type=v2.TRANSACTION) for _ in range(2)]
    assert sent[0].entries[0] == sent[1].entries[0]


async def test_a_producer_is_asked_what_became_of_its_transaction(client: MessagingClient) -> None:
    stream = client.telemetry()
    # it says nothing of its topics: it has sent to one
    await say(stream, producer())
    assert (await told(stream)).HasField("settings")
    sent = await client.send("T", b"1", message_type=v2.TRANSACTION)
    command = (await told(stream)).recover_orphaned_transaction_command
    assert command.transaction_id == sent.entries[0].transaction_id
    assert (command.message.body, command.message.topic.name) == (b"1", "T")
    assert command.message.system_properties.body_encoding == v2.IDENTITY
    assert (await end(client, command.transaction_id, v2.COMMIT)).status.code == v2.OK
    assert [each.body for each in await client.receive("T")] == [b"1"]


async def test_a_group_with_members_of_another_kind_is_refused(
    node: Node, client: MessagingClient
) -> None:
    await client.send("T", b"1")
    node.work.kinds.count_by(MemberKind.CLASSIC, lambda _: 2)
    (answer,) = await client.answers("T")
    assert answer.status.code == v2.PRECONDITION_FAILED
    assert "2 members of RocketMQ's clients" in answer.status.message


# ---- leases that are renewed


async def test_leases_last_while_their_client_lives(node: Node, client: MessagingClient) -> None:
    await client.send("T", b"1")
    (got,) = await client.receive("T", auto_renew=True)
    now = 100.0
    renewed = RenewedLeases(node.work, node.terms.role.epoch, lambda: now)
    renewed.add(CLIENT, "G", [got.system_properties.receipt_handle], "")
    await renewed.look()
    assert renewed.count == 1
    now += ALIVE_S + 1
    await renewed.look()
    assert renewed.count == 0


async def test_leases_of_what_is_done_are_not_renewed(node: Node, client: MessagingClient) -> None:
    await client.send("T", b"1")
    (got,) = await client.receive("T", auto_renew=True)
    renewed = RenewedLeases(node.work, node.terms.role.epoch, lambda: 100.0)
    renewed.add(CLIENT, "G", [got.system_properties.receipt_handle], "")
    await client.ack(got)
    await renewed.look()
    assert renewed.count == 0


async def test_a_client_that_ends_gives_its_messages_back(client: MessagingClient) -> None:
    await client.send("T", b"1")
    await client.receive("T", auto_renew=True)
    request = v2.NotifyClientTerminationRequest(group=v2.Resource(name="G"))
    await client.ask("NotifyClientTermination", request, v2.NotifyClientTerminationResponse)
    (got,) = await client.receive("T", poll_s=3)
    assert got.system_properties.delivery_attempt == 2


async def test_a_heartbeat_names_its_client(node: Node, client: MessagingClient) -> None:
    request = v2.HeartbeatRequest(client_type=v2.PUSH_CONSUMER)
    answer = await client.ask("Heartbeat", request, v2.HeartbeatResponse)
    assert answer.status.code == v2.OK
    async with a_client(node.endpoints.rocketmq_grpc, "") as unnamed:
        answer = await unnamed.ask("Heartbeat", request, v2.HeartbeatResponse)
        assert answer.status.code == v2.CLIENT_ID_REQUIRED


async def test_many_clients_of_one_identity_do_not_end_the_leases_of_another(node: Node) -> None:
    renewed = RenewedLeases(node.work, node.terms.role.epoch, lambda: 100.0, most_clients=3)
    renewed.add(Who("orders", "1"), "G", ["h1"], "")
    for number in range(5):
        renewed.add(Who("other", f"{number}"), "G", [f"{number}"], "")
        renewed.heard(Who("other", f"silent-{number}"))
    assert renewed.count == 3
    await renewed.goodbye(Who("other", "1"))
    renewed.forget(Who("orders", "1"), ["h1"])
    assert renewed.count == 2


# ---- rights

ACCESS = """
[[identity]]
name = "orders"
access_keys = [{ key = "orders-key", secret = "a-secret-of-orders" }]
write = ["T"]
read = ["T"]
consume = ["G"]

[[identity]]
name = "others"
access_keys = [{ key = "others-key", secret = "a-secret-of-others" }]
consume = ["H"]
"""


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Node]:
    file = tmp_path / "access.toml"
    file.write_text(ACCESS)
    file.chmod(0o600)
    security = SecuritySection(access_file=str(file))
    async with a_node(tmp_path / "store", security=security, rocketmq_clients=DOOR) as node:
        yield node


def signed(secret: str, key: str = "orders-key") -> dict[str, str]:
    signature = signature_of(secret, DATE)
    return {
        "x_mq_date_time": DATE,
        "authorization": (
            f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"
        ),
    }


async def test_a_client_that_signs_has_the_rights_of_its_identity(guarded: Node) -> None:
    address = guarded.endpoints.rocketmq_grpc
    async with a_client(address, **signed("a-secret-of-orders")) as client:
        assert (await client.send("T", b"1")).status.code == v2.OK
        assert (await client.send("Other", b"1")).status.code == v2.FORBIDDEN
        assert [each.body for each in await client.receive("T")] == [b"1"]
        (answer,) = await client.answers("T", "H")
        assert answer.status.code == v2.FORBIDDEN
        (answer,) = await client.answers("Other", "G")
        assert answer.status.code == v2.FORBIDDEN
        request = v2.QueryRouteRequest(topic=v2.Resource(name="Other"))
        answer = await client.ask("QueryRoute", request, v2.QueryRouteResponse)
        assert answer.status.code == v2.FORBIDDEN


async def test_another_identity_with_the_id_of_a_client_does_not_end_its_leases(
    guarded: Node,
) -> None:
    address = guarded.endpoints.rocketmq_grpc
    others = signed("a-secret-of-others", "others-key")
    async with (
        a_client(address, **signed("a-secret-of-orders")) as client,
        a_client(address, **others) as other,
    ):
        await client.send("T", b"1")
        assert await client.receive("T", auto_renew=True)
        request = v2.NotifyClientTerminationRequest()
        answer = await other.ask(
            "NotifyClientTermination", request, v2.NotifyClientTerminationResponse
        )
        assert answer.status.code == v2.OK
        assert await client.receive("T", poll_s=2) == []


async def test_rights_that_change_during_a_receive_leave_no_leases(guarded: Node) -> None:
    keeper, address = guarded._door.keeper, guarded.endpoints.rocketmq_grpc
    async with a_client(address, **signed("a-secret-of-orders")) as client:
        assert (await client.send("T", b"0")).status.code == v2.OK
        await client.ack(*await client.receive("T"))
        waiting = asyncio.create_task(client.answers("T", poll_s=10, within_s=20.0))
        await until(lambda: guarded.work.numbers().waiting)
        keeper.replace_access(parse_access(ACCESS.replace('"G"', '"G", "I"'), "access.toml"))
        assert (await client.send("T", b"1")).status.code == v2.OK
        (answer,) = await waiting
        assert answer.status.code == v2.INTERNAL_ERROR
        assert "have changed" in answer.status.message
        assert [each.body for each in await client.receive("T")] == [b"1"]


@pytest.mark.parametrize("secret", ["", "another-secret"])
async def test_a_client_that_is_not_known_is_refused_unread(guarded: Node, secret: str) -> None:
    headers = signed(secret) if secret else {}
    async with a_client(guarded.endpoints.rocketmq_grpc, **headers) as client:
        assert (await client.send("T", b"1")).status.code == v2.UNAUTHORIZED
        (answer,) = await client.answers("T")
        assert answer.status.code == v2.UNAUTHORIZED
        stream = client.telemetry()
        assert (await told(stream)).status.code == v2.UNAUTHORIZED

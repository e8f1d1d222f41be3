"""A slave hands requests on to a master that lets in no connection without a certificate."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.authority import Authority
from fakes.inner_node import running
from fakes.messaging_client import DOOR
from fakes.messaging_front import fronted
from fakes.secured_node import settings
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.node.node import Node
from tandemlog_server.rocketmq.messaging.signatures import signature_of

DATE, SECRET = "20260101T000000Z", "a-secret-of-orders"
ACCESS = f"""
[[identity]]
name = "orders"
access_keys = [{{ key = "orders-key", secret = "{SECRET}" }}]
write = ["T"]
"""
SIGNED = {
    "x_mq_date_time": DATE,
    "authorization": "MQv2-HMAC-SHA1 Credential=orders-key, SignedHeaders=x-mq-date-time, "
    f"Signature={signature_of(SECRET, DATE)}",
}


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Node]:
    config = settings(
        tmp_path, authority=Authority(), required=True, access=ACCESS, rocketmq_clients=DOOR
    )
    async with running(config) as node:
        yield node


async def test_the_caller_is_known_by_its_signature(master: Node) -> None:
    async with fronted(master, SIGNED, address=master.endpoints.rocketmq_grpc) as (_, client):
        assert (await client.send("T", b"1")).status.code == v2.OK
        assert (await client.send("U", b"1")).status.code == v2.FORBIDDEN


async def test_the_certificate_of_the_slave_lends_no_rights(master: Node) -> None:
    async with fronted(master, address=master.endpoints.rocketmq_grpc) as (_, client):
        refused = await client.send("T", b"1")
        assert refused.status.code == v2.UNAUTHORIZED
        assert "has to know who calls" in refused.status.message

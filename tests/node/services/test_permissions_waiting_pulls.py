"""A pull that waits is answered by the rights that its caller has when the message comes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode, aio

from fakes.secured_node import access_text, bearer, channel, running, settings, until
from tandemlog.format.record.record import encode_record
from tandemlog.v1 import broker_pb2, broker_pb2_grpc, common_pb2
from tandemlog_server.storage.metadata.topics import TopicConfig

WRITER = {"write": ["t"]}


async def put(broker: Any) -> None:
    record = encode_record(topic="t", body=b"secret")
    call = broker.Append(metadata=bearer("writer"))
    await call.write(
        broker_pb2.AppendRequest(
            topics=["t"],
            queue_topics=[0],
            queue_ids=[0],
            records=record,
            sizes=len(record).to_bytes(4, "little"),
            queue_indexes=b"\0\0",
        )
    )
    assert (await call.read()).status == broker_pb2.PUT_OK


@pytest.mark.parametrize("after", ["the same", "no right", "no token"])
async def test_rights_that_change_while_a_pull_waits(tmp_path: Path, after: str) -> None:
    given: dict[str, Any] = {"reader": {"read": ["t"]}, "writer": WRITER}
    changed: dict[str, Any] = {
        "the same": {**given, "other": {}},
        "no right": {**given, "reader": {"read": ["u"]}},
        "no token": {"writer": WRITER},
    }[after]
    async with (
        running(settings(tmp_path, access=access_text(**given))) as node,
        channel(node) as on,
    ):
        node.store.create_topic(TopicConfig("t", 1, 1))
        broker: Any = broker_pb2_grpc.BrokerStub(on)
        request = broker_pb2.PullRequest(
            positions=[broker_pb2.QueuePosition(topic="t")], max_messages=1, wait_ms=20_000
        )
        waiting = asyncio.ensure_future(broker.Pull(request, metadata=bearer("reader")))
        await until(lambda: node.pulls.waiting == 1)
        (tmp_path / "access.toml").write_text(access_text(**changed))
        await until(lambda: node.security.doorkeeper._version == 2)
        await put(broker)
        if after == "no token":
            with pytest.raises(aio.AioRpcError) as refused:
                await waiting
            assert refused.value.code() is StatusCode.UNAUTHENTICATED
            return
        answer = await waiting
        if after == "no right":
            assert answer.error.code == common_pb2.PERMISSION_DENIED
            assert b"secret" not in answer.SerializeToString()
        else:
            assert b"secret" in answer.SerializeToString()

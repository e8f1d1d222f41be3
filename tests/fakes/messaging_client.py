"""A client of the 5.x API for tests: one call of one method, under the official path."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from grpc import aio

from fakes.inner_node import config, running
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.node.messaging.messaging_call import SERVICE
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.rocketmq_clients_section import RocketmqClientsSection

DOOR = RocketmqClientsSection(grpc_listen="127.0.0.1:0")


class MessagingClient:
    """See the module. `headers` go with each call."""

    def __init__(self, channel: aio.Channel, client_id: str = "client-1", **headers: str) -> None:
        self.channel = channel
        self.metadata = (
            ("x-mq-client-id", client_id),
            *((name.replace("_", "-"), value) for name, value in headers.items()),
        )

    async def ask(self, name: str, request: Any, answer: Any, within_s: float = 20.0) -> Any:
        call: Any = self.channel.unary_unary(f"/{SERVICE}/{name}")
        data = request if isinstance(request, bytes) else request.SerializeToString()
        return answer.FromString(await call(data, metadata=self.metadata, timeout=within_s))

    def telemetry(self) -> Any:
        open_stream: Any = self.channel.stream_stream(f"/{SERVICE}/Telemetry")
        return open_stream(metadata=self.metadata)

    # ---- messages

    async def send(self, topic: str, body: bytes = b"x", **system: Any) -> v2.SendMessageResponse:
        return await self.send_all([message(topic, body, **system)])

    async def send_all(self, messages: Sequence[v2.Message]) -> v2.SendMessageResponse:
        request = v2.SendMessageRequest(messages=messages)
        answer: v2.SendMessageResponse = await self.ask(
            "SendMessage", request, v2.SendMessageResponse
        )
        return answer

    async def receive(
        self, topic: str, group: str = "G", *, within_s: float = 5.0, **fields: Any
    ) -> list[v2.Message]:
        """The messages; an error of the receive is an assertion."""
        answers = await self.answers(topic, group, within_s=within_s, **fields)
        status = next(each.status for each in answers if each.HasField("status"))
        assert status.code in (v2.OK, v2.MESSAGE_NOT_FOUND), status
        return [each.message for each in answers if each.HasField("message")]

    async def answers(
        self,
        topic: str,
        group: str = "G",
        *,
        lease_s: int = 30,
        poll_s: int = 1,
        within_s: float = 5.0,
        **fields: Any,
    ) -> list[v2.ReceiveMessageResponse]:
        request = v2.ReceiveMessageRequest(
            group=v2.Resource(name=group),
            message_queue=v2.MessageQueue(topic=v2.Resource(name=topic)),
            batch_size=32,
            **fields,
        )
        if not request.auto_renew:
            request.invisible_duration.FromSeconds(lease_s)
        request.long_polling_timeout.FromSeconds(poll_s)
        call: Any = self.channel.unary_stream(f"/{SERVICE}/ReceiveMessage")
        stream = call(request.SerializeToString(), metadata=self.metadata, timeout=within_s)
        return [v2.ReceiveMessageResponse.FromString(each) async for each in stream]

    async def ack(self, *messages: v2.Message, group: str = "G") -> v2.AckMessageResponse:
        request = v2.AckMessageRequest(group=v2.Resource(name=group))
        for each in messages:
            system = each.system_properties
            request.entries.add(message_id="any", receipt_handle=system.receipt_handle)
        answer: v2.AckMessageResponse = await self.ask("AckMessage", request, v2.AckMessageResponse)
        return answer

    async def change(
        self, received: v2.Message, duration_ms: int, group: str = "G"
    ) -> v2.ChangeInvisibleDurationResponse:
        request = v2.ChangeInvisibleDurationRequest(
            group=v2.Resource(name=group),
            receipt_handle=received.system_properties.receipt_handle,
        )
        request.invisible_duration.FromMilliseconds(duration_ms)
        answer: v2.ChangeInvisibleDurationResponse = await self.ask(
            "ChangeInvisibleDuration", request, v2.ChangeInvisibleDurationResponse
        )
        return answer


def message(topic: str, body: bytes = b"x", **system: Any) -> v2.Message:
    """A message with these system properties, and an id."""
    made = v2.Message(topic=v2.Resource(name=topic), body=body)
    given = {"message_type": v2.NORMAL, "message_id": f"ID{body.decode()}", **system}
    for name, value in given.items():
        if name == "delivery_ms":
            made.system_properties.delivery_timestamp.FromMilliseconds(value)
        else:
            setattr(made.system_properties, name, value)
    return made


@asynccontextmanager
async def a_node(directory: Path, **fields: Any) -> AsyncIterator[Node]:
    """A node that leads alone, with the port."""
    fields.setdefault("rocketmq_clients", DOOR)
    async with running(config(directory, **fields)) as node:
        yield node


@asynccontextmanager
async def a_client(address: str, name: str = "client-1", **headers: str) -> Any:
    options = (("grpc.max_receive_message_length", 64 << 20),)
    async with aio.insecure_channel(address, options=options) as channel:
        yield MessagingClient(channel, name, **headers)

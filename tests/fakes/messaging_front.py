"""A door of a slave in front of a whole node, with a cluster that a test moves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from fakes.messaging_client import MessagingClient, a_client
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog.v1 import common_pb2
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.messaging.client_sessions import ClientSessions
from tandemlog_server.node.messaging.master_calls import HandingLimits, MasterCalls
from tandemlog_server.node.messaging.messaging_call import Answers, MessagingCall, Method
from tandemlog_server.node.messaging.messaging_door import MessagingDoor
from tandemlog_server.node.messaging.messaging_server import MessagingServer
from tandemlog_server.node.messaging.receive_methods import GIVE_BACK, undelivered
from tandemlog_server.node.messaging.telemetry import Telemetry
from tandemlog_server.node.messaging.telemetry_relay import TelemetryRelay
from tandemlog_server.node.node import Node
from tandemlog_server.node.remoting.cluster.link_tls import LinkTls
from tandemlog_server.node.services.call_door import CallDoor
from tandemlog_server.node.settings.listen_endpoints import usable
from tandemlog_server.rocketmq.messaging.refusals import made_status

PARK_S = 5.0


class MovedCluster:
    """Where a test says that the master is."""

    def __init__(self, address: str = "") -> None:
        self.address = address
        self.led = False

    def leads(self) -> bool:
        return self.led

    def master_address(self) -> str:
        return self.address


async def not_here(_: Any, __: MessagingCall) -> Answers:
    raise RequestRefusedError(common_pb2.NOT_MASTER, "this node is no master")


METHODS = (
    Method("SendMessage", v2.SendMessageRequest, v2.SendMessageResponse, not_here),
    Method("AckMessage", v2.AckMessageRequest, v2.AckMessageResponse, not_here),
    Method("EndTransaction", v2.EndTransactionRequest, v2.EndTransactionResponse, not_here),
    Method(
        "ReceiveMessage",
        v2.ReceiveMessageRequest,
        v2.ReceiveMessageResponse,
        not_here,
        streams=True,
        without_master=made_status(v2.MESSAGE_NOT_FOUND),
    ),
    Method(
        "Heartbeat",
        v2.HeartbeatRequest,
        v2.HeartbeatResponse,
        not_here,
        parks=False,
        without_master=made_status(v2.OK),
    ),
)


class Front:
    """See the module; it knows no callers."""

    def __init__(
        self, node: Node, address: str = "", park_s: float = PARK_S, **limits: int
    ) -> None:
        self.cluster = MovedCluster(address)
        self.master = MasterCalls(
            self.cluster,
            credentials=LinkTls(node.config.tls).credentials,
            limits=HandingLimits(park_s=park_s, **limits),
        )
        call_door = CallDoor(node._turns, max_calls=100, max_streams=100)
        door = MessagingDoor(call_door, self.master)
        self.counts = door.counts
        sessions = ClientSessions()
        telemetry = Telemetry(sessions, node.store.groups.policy, 1_000)
        self.relay = TelemetryRelay(sessions, self.master)
        give_back = Method(
            GIVE_BACK, v2.AckMessageRequest, v2.AckMessageResponse, not_here, parks=False
        )
        handlers = {each.name: door.handler(each) for each in METHODS}
        receive = next(each for each in METHODS if each.streams)
        handlers[receive.name] = door.handler(
            replace(receive, undelivered=partial(undelivered, self.master, give_back))
        )
        handlers["Telemetry"] = door.stream(telemetry.serve, "Telemetry")
        self.endpoint = usable("front", "127.0.0.1:0")
        self.server = MessagingServer(
            handlers, call_door.keeper, largest=1 << 20, connections=100, tls=None
        )
        self.server.on_drain(self.master.park_no_more)
        self.server.on_stop(self.master.close)
        self.server.run_beside(self.relay.run(), "relay")


@asynccontextmanager
async def fronted(
    node: Node, headers: dict[str, str] | None = None, **fields: Any
) -> AsyncIterator[tuple[Front, MessagingClient]]:
    front = Front(node, **fields)
    await front.server.start(front.endpoint)
    try:
        async with a_client(front.endpoint, **(headers or {})) as client:
            yield front, client
    finally:
        await front.server.stop(0.1)

"""The door of RocketMQ's 5.x clients, put together: which methods there are, and what they use.

    node ─▶ ClientsNode ─▶ one class of methods for each subject
                        ─▶ MessagingDoor (the same counts and rights as gRPC) ─▶ MessagingServer

It stands beside that of the classic clients (rocketmq_clients.py), and shares the topics that it
creates and the sends that it appends together with that one.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import grpc

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.rocketmq.clients.stored_properties import BrokerFacts

from .messaging.client_methods import ClientMethods
from .messaging.client_sessions import ClientSessions
from .messaging.first_copies import FirstCopies, HandleOf
from .messaging.lease_methods import LeaseMethods
from .messaging.master_calls import MasterCalls
from .messaging.messaging_call import Method
from .messaging.messaging_door import MessagingDoor
from .messaging.messaging_server import MessagingServer
from .messaging.orphan_checks import OrphanChecks
from .messaging.receive_methods import ReceiveMethods
from .messaging.renewed_leases import RenewedLeases
from .messaging.route_methods import RouteMethods
from .messaging.send_methods import SLACK_BYTES, SendMethods
from .messaging.telemetry import Telemetry
from .messaging.telemetry_relay import TelemetryRelay
from .messaging.transaction_methods import TransactionMethods
from .remoting.cluster.cluster_nodes import ClusterNodes
from .remoting.cluster.link_tls import LinkTls
from .remoting.cluster.topic_creation import TopicCreation
from .remoting.sends.joint_sends import JointSends
from .rocketmq_clients import ClientsNode, broker_names
from .services.call_door import Handler
from .services.door_numbers import DoorNumbers
from .services.transaction_ends import TransactionEnds

GRPC: Final = "grpc"
"""The door's name in metrics."""


class Methods(Protocol):
    """What a class of methods has."""

    def methods(self) -> list[Method]:
        """Those that it serves."""


async def started_messaging(
    node: ClientsNode, topics: TopicCreation, joint: JointSends, *, connections: int
) -> tuple[MessagingServer, ...]:
    """The server, listening; none if the node has no such port. Raises ListenError."""
    if not node.endpoints.rocketmq_grpc:
        return ()
    nodes = _nodes(node)
    master = MasterCalls(nodes, credentials=_credentials(node))
    sessions = ClientSessions()
    renewed = RenewedLeases(node.work, lambda: node.terms.role.epoch(), time.monotonic)
    ends = TransactionEnds(node.store, node.transactions, node.terms, node.waiters, node.config.put)
    parts: list[Methods] = [
        RouteMethods(node.store, nodes, topics),
        _sends(node, topics, joint, sessions),
        ReceiveMethods(node.store, node.work, renewed, master),
        LeaseMethods(node.work, renewed),
        ClientMethods(renewed),
        TransactionMethods(node.store, ends),
    ]
    door = MessagingDoor(node.door, master)
    telemetry = Telemetry(sessions, node.store.groups.policy, node.store.config.max_message_size)
    handlers = handlers_of(door, parts)
    handlers["Telemetry"] = door.stream(telemetry.serve, "Telemetry")
    section = node.config.rocketmq_clients
    server = MessagingServer(
        handlers,
        node.door.keeper,
        largest=node.store.config.max_message_size + SLACK_BYTES,
        connections=connections,
        tls=None if section.plaintext else node.security.tls,
    )
    server.on_drain(master.park_no_more)
    server.on_stop(master.close)
    await server.start(node.endpoints.rocketmq_grpc)
    server.run_beside(renewed.run(), "rocketmq-leases")
    server.run_beside(TelemetryRelay(sessions, master).run(), "rocketmq-telemetry")
    checks = OrphanChecks(node.store, node.transactions, node.turns, sessions)
    server.run_beside(checks.run(), "rocketmq-orphans")
    node.door.rocketmq[GRPC] = partial(door_numbers, door, sessions, master)
    return (server,)


def door_numbers(door: MessagingDoor, sessions: ClientSessions, master: MasterCalls) -> DoorNumbers:
    """For a scrape."""
    return DoorNumbers(
        door.counts.numbers(),
        connections=door.connections,
        clients=sessions.client_count,
        members=sessions.member_counts(),
        parked=master.parked,
        handed_on=master.handed_on_total,
        repeated=master.repeated_total,
    )


def handlers_of(door: MessagingDoor, parts: Sequence[Methods]) -> dict[str, Handler]:
    """All methods, by their names."""
    return {each.name: door.handler(each) for part in parts for each in part.methods()}


def _nodes(node: ClientsNode) -> ClusterNodes:
    return ClusterNodes(
        broker_names(node),
        node.terms,
        lambda: node.membership.members(stopping=False),
        node_id=node.config.node_id,
        address=node.endpoints.rocketmq_grpc_advertise,
        founders=node.config.coordinator.members,
        now=asyncio.get_running_loop().time,
        door_of=_door_of,
    )


def _door_of(row: common_pb2.NodeStatus) -> str:
    return row.rocketmq_grpc_endpoint


def _sends(
    node: ClientsNode, topics: TopicCreation, joint: JointSends, sessions: ClientSessions
) -> SendMethods:
    timeout_s = node.config.put.timeout_ms / 1000

    async def recall(request: broker_pb2.RecallRequest) -> broker_pb2.RecallResponse:
        epoch = node.terms.role.epoch()
        return await node.delays.recall(request, node.waiters, epoch, timeout_s)

    def copies(handle_of: HandleOf) -> FirstCopies:
        return FirstCopies(node.store, node.terms, node.waiters, lambda: timeout_s, handle_of)

    return SendMethods(
        node.store,
        joint,
        topics,
        BrokerFacts(node.config.rocketmq_clients.cluster_name),
        copies,
        recall,
        sessions.transacts,
        broker_name=node.broker_name,
    )


def _credentials(node: ClientsNode) -> Callable[[], grpc.ChannelCredentials | None]:
    """Of connections to other nodes."""
    if node.config.rocketmq_clients.plaintext:
        return lambda: None
    return LinkTls(node.config.tls).credentials

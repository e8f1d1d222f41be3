"""The door of RocketMQ's clients, put together: which methods there are, and what they use.

    node ─▶ ClientsNode ─▶ one class of methods for each subject
                        ─▶ RemotingDoor (the same counts and rights as gRPC) ─▶ RemotingServer

A class of methods has `methods()`, request code -> Method; two classes may not serve one code. A
node without [rocketmq_clients] has no object of node/remoting.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from tandemlog.format.record.host import host_bytes
from tandemlog.format.record.message_id import UniqueIdGenerator
from tandemlog.v1 import admin_pb2, broker_pb2
from tandemlog_server.rocketmq.clients.broker_topics import broker_topics
from tandemlog_server.rocketmq.clients.client_table import ClientLimits, ClientTable
from tandemlog_server.rocketmq.clients.half_messages import make_half
from tandemlog_server.rocketmq.clients.pop.order_counts import OrderCounts
from tandemlog_server.rocketmq.clients.routes import BrokerNames
from tandemlog_server.rocketmq.clients.stored_properties import BrokerFacts
from tandemlog_server.storage.message_store import MessageStore

from .cluster_membership import ClusterMembership
from .groups.group_coordinator import GroupCoordinator
from .process.machine_bounds import byte_bound
from .pulls.group_activity import GroupActivity
from .pulls.known_queues import KnownQueues
from .pulls.queue_reads import QueueReads
from .pulls.read_turns import ReadTurns
from .puts.confirm_waiters import ConfirmWaiters
from .puts.delay_service import DelayService
from .puts.put_pump import PutPump
from .remoting.clients.client_methods import ClientMethods
from .remoting.clients.lock_methods import LockMethods
from .remoting.cluster.broker_methods import BrokerMethods
from .remoting.cluster.cluster_nodes import ClusterNodes
from .remoting.cluster.forwarding import Forwarder
from .remoting.cluster.link_tls import LinkTls
from .remoting.cluster.master_link import MasterLink
from .remoting.cluster.order_methods import OrderMethods
from .remoting.cluster.route_methods import RouteMethods
from .remoting.cluster.topic_creation import TopicCreation
from .remoting.cluster.topic_methods import TopicMethods
from .remoting.door.broker_settings import broker_settings
from .remoting.door.remoting_call import Connection, Method
from .remoting.door.remoting_door import RemotingDoor
from .remoting.door.remoting_server import RemotingServer
from .remoting.pop.ack_methods import AckMethods
from .remoting.pop.assignment_methods import AssignmentMethods
from .remoting.pop.pop_methods import PopMethods
from .remoting.pop.pop_offsets import PopOffsets
from .remoting.pop.request_modes import RequestModes
from .remoting.reads.cluster_readers import ClusterReaders
from .remoting.reads.progress_methods import ProgressMethods
from .remoting.reads.read_methods import ReadMethods, read_methods
from .remoting.sends.joint_sends import JointSends
from .remoting.sends.repeated_sends import RepeatedSends
from .remoting.sends.reply_methods import ReplyMethods
from .remoting.sends.return_methods import ReturnMethods
from .remoting.sends.second_attempts import SecondAttempts
from .remoting.sends.send_methods import SendMethods
from .remoting.sends.transaction_checks import TransactionChecks
from .remoting.sends.transaction_methods import TransactionMethods
from .roles.terms import Terms
from .security.node_security import NodeSecurity
from .services.call_door import CallDoor
from .services.door_numbers import DoorNumbers, RequestCounts
from .services.group_service import GroupService
from .services.transaction_ends import TransactionEnds
from .settings.listen_endpoints import Endpoints
from .settings.node_config import NodeConfig
from .settings.rocketmq_clients_section import RocketmqClientsSection
from .transactions.transaction_work import TransactionWork
from .work.work_looks import has_begun
from .work.work_service import WorkService

REMOTING: Final = "remoting"
"""The door's name in metrics."""
PORT_SIZE: Final = 4
"""Bytes of the port behind an address in the log."""


@dataclass(frozen=True, slots=True)
class ClientsNode:
    """What methods may use of the node."""

    config: NodeConfig
    endpoints: Endpoints
    security: NodeSecurity
    door: CallDoor
    turns: ReadTurns
    store: MessageStore
    terms: Terms
    membership: ClusterMembership
    pump: PutPump
    waiters: ConfirmWaiters
    reads: QueueReads
    known: KnownQueues
    groups: GroupCoordinator
    activity: GroupActivity
    delays: DelayService
    work: WorkService
    transactions: TransactionWork
    group_service: GroupService

    @property
    def broker_name(self) -> str:
        """As clients see it."""
        return self.config.rocketmq_clients.broker_name or self.config.cluster_id


class Methods(Protocol):
    """What a class of methods has."""

    def methods(self) -> Mapping[int, Method]:
        """By request code."""


def started_clients(
    node: ClientsNode, topics: TopicCreation, joint: JointSends, *, connections: int
) -> tuple[RemotingServer, ...]:
    """The server, listening; none if the node has no such port. `topics` and `joint` are those of
    both doors. Raises ListenError."""
    if not node.endpoints.rocketmq:
        return ()
    routing = routing_of(node, topics)
    modes = RequestModes(node.store.groups)
    clients = ClientMethods(
        node.store, node.terms, node.work.kinds, routing.topics, time.monotonic,
        client_limits(node.config.rocketmq_clients), turns=node.turns, pops=modes.pops,
    )  # fmt: skip
    counts = OrderCounts()
    pop_offsets = PopOffsets(node.store, node.work, node.group_service, modes, counts.forget)
    node.group_service.setting = pop_offsets.setting
    locks = LockMethods(node.store, node.terms, time.monotonic)
    read = _reads(node, routing, clients, modes)
    parts: list[Methods] = [
        read.pulls,
        read.offsets,
        read.queries,
        clients,
        locks,
        progress_methods(node, clients, pop_offsets),
        transaction_methods(node),
        *routing_methods(node, routing),
        *send_methods(node, routing.topics, joint, clients),
        *pop_methods(node, routing, clients, modes, counts),
    ]
    tls = node.security.tls
    door = RemotingDoor(node.door, table_of(parts), routing.forwarder)
    server = RemotingServer(
        door,
        node.door.keeper.audit,
        tls=None if tls is None else tls.http_context,
        plaintext=tls is None or node.config.rocketmq_clients.plaintext,
        connections=connections,
        frame_bytes=byte_bound(node.config.put.max_pending_bytes),
    )
    server.on_stop(routing.forwarder.close)
    server.on_stop(joint.close)
    server.on_stop(read.pulls.on_stop)
    node.terms.listen(read.pulls.on_role_change)
    server.start(node.endpoints.rocketmq)
    server.run_beside(clients.run(), "rocketmq-clients")
    server.run_beside(locks.run(), "rocketmq-locks")
    server.run_beside(pop_offsets.run(), "rocketmq-pop-offsets")
    server.run_beside(transaction_checks(node, clients).run(), "rocketmq-checks")
    node.door.rocketmq[REMOTING] = partial(
        door_numbers, door.counts, server, clients.table, routing.forwarder
    )
    return (server,)


def client_limits(section: RocketmqClientsSection) -> ClientLimits:
    """More clients than by default may have more bytes of heartbeats, in proportion."""
    usual = ClientLimits()
    more = max(1.0, section.max_clients / usual.clients)
    return ClientLimits(section.max_clients, section.max_members, int(more * usual.total_bytes))


def door_numbers(
    counts: RequestCounts[int],
    server: RemotingServer,
    table: ClientTable[Connection],
    forwarder: Forwarder,
) -> DoorNumbers:
    """For a scrape."""
    return DoorNumbers(
        counts.numbers(),
        connections=server.connections,
        clients=table.client_count,
        members=table.member_counts(),
        parked=forwarder.parked,
        handed_on=forwarder.handed_on_total,
        repeated=forwarder.repeated_total,
    )


def progress_methods(
    node: ClientsNode, clients: ClientMethods, pop_offsets: PopOffsets
) -> ProgressMethods:
    """How far groups are."""
    return ProgressMethods(
        node.store,
        node.terms,
        node.group_service,
        node.turns,
        clients.table,
        node.broker_name,
        pop_offsets.setting,
    )


def transaction_methods(node: ClientsNode) -> TransactionMethods:
    ends = TransactionEnds(node.store, node.transactions, node.terms, node.waiters, node.config.put)
    return TransactionMethods(node.store, ends, node.turns)


def transaction_checks(node: ClientsNode, clients: ClientMethods) -> TransactionChecks:
    """Producers are asked what became of their transactions."""
    return TransactionChecks(
        node.store, node.transactions, node.turns, clients.table.producers, clients.caller_of
    )


@dataclass(frozen=True, slots=True)
class Routing:
    """What several classes of methods share."""

    nodes: ClusterNodes
    topics: TopicCreation
    forwarder: Forwarder


def broker_names(node: ClientsNode) -> BrokerNames:
    """As clients see them."""
    return BrokerNames(node.config.rocketmq_clients.cluster_name, node.broker_name)


def topic_creation(node: ClientsNode) -> TopicCreation:
    """The topics that clients may make."""
    names, section = broker_names(node), node.config.rocketmq_clients
    own = broker_topics(names.cluster, names.broker, queues=section.auto_create_queues)
    return TopicCreation(node.store, node.terms, own, auto_create=section.auto_create_topics)


def routing_of(node: ClientsNode, topics: TopicCreation) -> Routing:
    """Where the nodes are, which topics there are, and how a request reaches the master."""
    names = broker_names(node)
    nodes = ClusterNodes(
        names,
        node.terms,
        lambda: node.membership.members(stopping=False),
        node_id=node.config.node_id,
        address=node.endpoints.rocketmq_advertise,
        founders=node.config.coordinator.members,
        now=asyncio.get_running_loop().time,
    )
    links = LinkTls(node.config.tls)
    repeated = RepeatedSends(
        node.store, node.terms, node.waiters, lambda: node.config.put.timeout_ms / 1000
    )
    forwarder = Forwarder(
        nodes, repeated, new_link=lambda address: MasterLink(address, links.context)
    )
    return Routing(nodes, topics, forwarder)


def routing_methods(node: ClientsNode, routing: Routing) -> list[Methods]:
    """What is asked of a name server, and of a broker itself."""
    store, nodes, topics = node.store, routing.nodes, routing.topics

    async def delete_group(name: str) -> None:
        await node.group_service.delete(admin_pb2.DeleteGroupRequest(group=name))

    return [
        RouteMethods(store, nodes, topics, routing.forwarder, node.turns),
        TopicMethods(store, nodes, topics, node.turns),
        OrderMethods(store, nodes, topics),
        BrokerMethods(
            store,
            node.terms,
            node.turns,
            settings=lambda: broker_settings(node.config, nodes.names, nodes.address),
            delete_group=delete_group,
            has_popped=partial(has_begun, node.work),
        ),
    ]


def pop_methods(
    node: ClientsNode,
    routing: Routing,
    clients: ClientMethods,
    modes: RequestModes,
    counts: OrderCounts,
) -> list[Methods]:
    """Consumers in POP mode."""

    def broker_names() -> list[str]:
        placement = routing.nodes.placement()
        return [placement.names.broker, *(name for name, _ in placement.aliases)]

    return [
        PopMethods(
            node.store,
            node.work,
            node.turns,
            broker_names=broker_names,
            recent_bytes=node.reads.limits.far_behind_bytes,
            order_counts=counts,
        ),
        AckMethods(node.store, node.work),
        AssignmentMethods(node.store, node.terms, clients, routing.topics, routing.nodes, modes),
    ]


def _reads(
    node: ClientsNode, routing: Routing, clients: ClientMethods, modes: RequestModes
) -> ReadMethods:
    return read_methods(
        node.store,
        node.reads,
        node.group_service,
        node.known,
        node.turns,
        node.terms,
        subscribed=clients.table.subscription,
        require_pulled=modes.require_pulled,
        readers=ClusterReaders(
            routing.nodes,
            lambda: node.membership.members(stopping=False),
            asyncio.get_running_loop().time,
        ),
    )


def joint_sends(node: ClientsNode) -> JointSends:
    put = node.config.put
    return JointSends(
        node.pump,
        node.terms,
        timeout_s=put.timeout_ms / 1000,
        most_parked_bytes=byte_bound(put.max_pending_bytes),
    )


def send_methods(
    node: ClientsNode, topics: TopicCreation, joint: JointSends, clients: ClientMethods
) -> list[Methods]:
    """All that clients store."""
    store, timeout_s = node.store, node.config.put.timeout_ms / 1000
    host = host_bytes(store.config.store_host)
    keys = UniqueIdGenerator(
        host[:-PORT_SIZE], os.getpid(), store.clock.now_ms, lambda: secrets.randbits(32)
    )

    async def recall(request: broker_pb2.RecallRequest) -> broker_pb2.RecallResponse:
        epoch = node.terms.role.epoch()
        return await node.delays.recall(request, node.waiters, epoch, timeout_s)

    sends = SendMethods(
        store,
        joint,
        topics,
        node.turns,
        BrokerFacts(node.config.rocketmq_clients.cluster_name),
        broker_name=node.broker_name,
        new_key=keys.next_id,
        make_half=make_half,
        attempts=SecondAttempts(store, node.terms, asyncio.get_running_loop().time),
    )
    return [
        sends,
        ReturnMethods(store, joint, topics, node.turns, recall),
        ReplyMethods(store, sends, clients.table.client),
    ]


def table_of(parts: Sequence[Methods]) -> dict[int, Method]:
    """All methods, by request code. Raises ValueError for a code that two parts serve."""
    table: dict[int, Method] = {}
    for part in parts:
        for code, method in part.methods().items():
            if code in table:
                raise ValueError(f"request {code} is served by two classes of methods")
            table[code] = method
    return table

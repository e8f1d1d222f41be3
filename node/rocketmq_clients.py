"""The door of RocketMQ's clients, put together: which methods there are, and what they use.

    node ─▶ ClientsNode ─▶ one class of methods for each subject
                        ─▶ RemotingDoor (the same counts and rights as gRPC) ─▶ RemotingServer

A class of methods has `methods()`, request code -> Method; two classes may not serve one code. A
node without [rocketmq_clients] has no object of node/remoting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tandemlog_server.storage.message_store import MessageStore

from .cluster_membership import ClusterMembership
from .groups.group_coordinator import GroupCoordinator
from .process.machine_bounds import byte_bound
from .pulls.group_activity import GroupActivity
from .pulls.known_queues import KnownQueues
from .pulls.pull_service import PullService
from .pulls.read_turns import ReadTurns
from .puts.confirm_waiters import ConfirmWaiters
from .puts.delay_service import DelayService
from .puts.put_pump import PutPump
from .remoting.remoting_call import Method
from .remoting.remoting_door import HandsOn, RemotingDoor
from .remoting.remoting_server import RemotingServer
from .remoting.transaction_methods import TransactionMethods
from .roles.terms import Terms
from .security.node_security import NodeSecurity
from .services.call_door import CallDoor
from .services.transaction_ends import TransactionEnds
from .settings.listen_endpoints import Endpoints
from .settings.node_config import NodeConfig
from .transactions.transaction_work import TransactionWork
from .work.work_service import WorkService


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
    pulls: PullService
    known: KnownQueues
    groups: GroupCoordinator
    activity: GroupActivity
    delays: DelayService
    work: WorkService
    transactions: TransactionWork

    @property
    def broker_name(self) -> str:
        """As clients see it."""
        return self.config.rocketmq_clients.broker_name or self.config.cluster_id


class Methods(Protocol):
    """What a class of methods has."""

    def methods(self) -> Mapping[int, Method]:
        """By request code."""


def started_clients(node: ClientsNode, *, connections: int) -> tuple[RemotingServer, ...]:
    """The server, listening; none if the node has no such port. Raises ListenError."""
    if not node.endpoints.rocketmq:
        return ()
    parts: list[Methods] = [transaction_methods(node)]
    master: HandsOn | None = None
    tls = node.security.tls
    server = RemotingServer(
        RemotingDoor(node.door, table_of(parts), master),
        node.door.keeper.audit,
        tls=None if tls is None else tls.http_context,
        plaintext=tls is None or node.config.rocketmq_clients.plaintext,
        connections=connections,
        frame_bytes=byte_bound(node.config.put.max_pending_bytes),
    )
    server.start(node.endpoints.rocketmq)
    return (server,)


def transaction_methods(node: ClientsNode) -> TransactionMethods:
    ends = TransactionEnds(node.store, node.transactions, node.terms, node.waiters, node.config.put)
    return TransactionMethods(node.store, ends, node.turns)


def table_of(parts: Sequence[Methods]) -> dict[int, Method]:
    """All methods, by request code. Raises ValueError for a code that two parts serve."""
    table: dict[int, Method] = {}
    for part in parts:
        for code, method in part.methods().items():
            if code in table:
                raise ValueError(f"request {code} is served by two classes of methods")
            table[code] = method
    return table

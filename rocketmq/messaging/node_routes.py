"""What a client of the 5.x API is told of where a topic is: entries that are ways to the nodes.

    3 nodes     entry 0 [A, B]     entry 1 [B, C]     entry 2 [C, A]
    2 nodes     entry 0 [A, B]     entry 1 [B]
    1 node      entry 0 [A]

A client picks an entry, and one connection to the addresses in it; it never says which queue it
means, so a node chooses the queue, and every node serves every request. After a failure a client
tries the next entry. A node that was killed refuses connections, and the client takes the other
address of the entry at once. A node that is frozen keeps its connection: that entry fails until the
connection is lost, and the others do not. So there is one entry for each node, and no two have the
same set of addresses, since a client keeps one connection for each set.

A send that failed is tried again at another broker's name only, so each entry has a name of its
own; it has the node's address, since a client's consumer keeps what it polls by that name. Each
entry is queue 0: the producer of Node.js's client uses no other queue.

A client takes several addresses only if they are numbers of one kind; an entry of host names has
one. Each client begins at another entry, so that the first of a list are not all at one node.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

from tandemlog.format.constants import PERM_READ, PERM_WRITE
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.storage.metadata.topics import TopicConfig

MESSAGE_TYPE: Final = "message.type"
"""The attribute of a topic that says what it takes; RocketMQ's tools write it with a `+`."""
_ALL: Final = (v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION)
_TYPES: Final = {
    "NORMAL": (v2.NORMAL,),
    "FIFO": (v2.FIFO,),
    "DELAY": (v2.DELAY,),
    "TRANSACTION": (v2.TRANSACTION,),
}


class Node(NamedTuple):
    host: str
    port: int
    scheme: int


def node_at(address: str) -> Node:
    """A node of which clients are told this host:port."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        kind = v2.IPV6 if ipaddress.ip_address(host).version == 6 else v2.IPV4
    except ValueError:
        kind = v2.DOMAIN_NAME
    return Node(host, int(port), kind)


def entries_of(
    addresses: Sequence[str], client_id: str = "", *, alone: bool = False
) -> list[v2.Endpoints]:
    """The entries of a route over the nodes at these host:port, in their order but for where they
    begin; `alone`: of one address each, for a client that cannot connect to two."""
    nodes = [node_at(each) for each in addresses]
    count = len(nodes)
    entries = []
    for index, node in enumerate(nodes):
        near = [node]
        following = nodes[(index + 1) % count]
        both = not alone and node.scheme == following.scheme != v2.DOMAIN_NAME
        # of two nodes the second entry would have the same two
        if both and following is not node and not (count == 2 and index == 1):
            near.append(following)
        entries.append(
            v2.Endpoints(
                scheme=v2.AddressScheme.ValueType(node.scheme),
                addresses=[v2.Address(host=each.host, port=each.port) for each in near],
            )
        )
    first = crc32(client_id.encode()) % count if count else 0
    return entries[first:] + entries[:first]


def types_of(topic: TopicConfig) -> tuple[int, ...]:
    """What the topic takes, as MessageType."""
    attributes = topic.attributes
    said = attributes.get(MESSAGE_TYPE) or attributes.get(f"+{MESSAGE_TYPE}") or ""
    return _TYPES.get(said.upper(), _ALL)


def queues_of(
    topic: TopicConfig, resource: v2.Resource, broker: str, entries: Sequence[v2.Endpoints]
) -> list[v2.MessageQueue]:
    """The route of a topic: each entry is queue 0 of a broker of its own, whose name begins with
    `broker` and has its first address."""
    return [
        v2.MessageQueue(
            topic=resource,
            id=0,
            permission=_permission(topic.perm),
            broker=v2.Broker(name=_name(broker, endpoints), id=0, endpoints=endpoints),
            accept_message_types=[v2.MessageType.ValueType(each) for each in types_of(topic)],
        )
        for endpoints in entries
    ]


def _name(broker: str, endpoints: v2.Endpoints) -> str:
    first = endpoints.addresses[0]
    return f"{broker}@{first.host}:{first.port}"


def _permission(perm: int) -> v2.Permission.ValueType:
    reads, writes = bool(perm & PERM_READ), bool(perm & PERM_WRITE)
    if reads and writes:
        return v2.READ_WRITE
    if reads:
        return v2.READ
    return v2.WRITE if writes else v2.NONE

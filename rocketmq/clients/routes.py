"""What a name server answers: where a topic is, which brokers there are, which topics.

    brokerDatas                                        queueDatas
      b     {0: node 1, 1: node 1, 2: node 2, 3: node 3}   b      read n, write n, perm of the topic
      b-w1  {0: node 2}                                    b-w1   read 0, write n, perm 2
      b-w2  {0: node 3}                                    b-w2   read 0, write n, perm 2

A producer that fails tries a broker of another *name*; so each slave is the master of a write
alias too, and hands on what comes there. A consumer ignores queues that it cannot read, so
the names of the queues that are consumed stay what they were. A selector by hash chooses among all
queues to write, so their number never changes with the state of the cluster: there are as many
aliases as nodes, less one, and an alias whose node is down has the address of another one.

A client asks for a route every 30 s, and reads from the broker id that the answer to its last pull
named. So an id has to mean the same in a route of before a failover: each node has a number that is
its own as long as the cluster has the same nodes, under which the master is found too, and pulls
are answered with numbers (cluster_readers.py). Id 0 of an old route is the master that is gone. The
number of a node that is down has the address of another slave: a number that a route lacks is read
from any of its addresses, id 0 first.

While there is no master, id 0 is the node that answers: it keeps what is the master's until there
is one. And each number is its own node's, since any other one may be elected, and should have no
readers.

A client follows the addresses here, so each is one that its node has said clients can reach.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tandemlog.format.constants import PERM_READ, PERM_WRITE
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.reads.results import QueueRange

from .broker_topics import AUTO_CREATED

MASTER_ID: Final = 0


@dataclass(frozen=True, slots=True)
class BrokerNames:
    """Under which names clients know the cluster and its one group of nodes."""

    cluster: str
    broker: str


@dataclass(frozen=True, slots=True)
class RouteNode:
    """A node of the cluster. `number` is its broker id, from 1; `address` is host:port at which
    clients reach it while it is `up`, empty if it has no door for them or none is known."""

    number: int
    address: str
    leads: bool = False
    up: bool = True


def numbers_of(node_ids: Iterable[str]) -> dict[str, int]:
    """The number of each node, from 1. The first one has the highest: it leads most of the time,
    and is 0 then."""
    names = sorted(set(node_ids))
    return {name: index or len(names) for index, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where clients find the nodes. `addresses` are those of the master, 0, and of slaves;
    `numbers` has one for each node's number, and nothing of a node that is alone; `aliases` are
    names and addresses."""

    names: BrokerNames
    addresses: Mapping[int, str]
    aliases: Sequence[tuple[str, str]] = ()
    numbers: Mapping[int, str] = field(default_factory=dict)


def placement(names: BrokerNames, nodes: Sequence[RouteNode], answering: str) -> Placement:
    """The nodes as clients should see them, told by the node at the address `answering`."""
    reached = [each for each in nodes if each.up and each.address]
    master = next((each.address for each in reached if each.leads), answering)
    slaves = [each for each in reached if each.address != master]
    addresses = {MASTER_ID: master}
    addresses.update((each.number, each.address) for each in slaves)
    present = {each.number: each.address for each in slaves}
    spare = list(present.values()) or [master]
    others = sorted(each.number for each in nodes if each.address != master)
    # as many as there are nodes, less one: a node without a door has none to be reached by
    others = others[: max(len(nodes) - 1, 0)]
    aliases = [
        (f"{names.broker}-w{index}", present.get(number) or spare[index % len(spare)])
        for index, number in enumerate(others, 1)
    ]
    led = any(each.leads for each in reached)
    own = {each.number: each.address for each in (reached if led else nodes)}
    numbers = {
        each.number: own.get(each.number) or spare[each.number % len(spare)] for each in nodes
    }
    return Placement(names, addresses, aliases, numbers if len(nodes) > 1 else {})


def route(topic: TopicConfig, place: Placement, *, aliases: bool = True) -> bytes:
    """TopicRouteData. Without `aliases` all that is sent goes to the master."""
    names = place.names
    also = place.aliases if aliases else ()
    brokers = [_broker(names, names.broker, {**place.addresses, **place.numbers})]
    brokers += [_broker(names, name, {MASTER_ID: address}) for name, address in also]
    queues = [_queues(names.broker, topic, topic.read_queues, topic.perm)]
    # a producer takes the queues to write of a new topic from those to read of its model
    read = topic.write_queues if topic.name == AUTO_CREATED else 0
    queues += [_queues(name, topic, read, topic.perm & ~PERM_READ) for name, _ in also]
    document: dict[str, object] = {
        "brokerDatas": brokers,
        "filterServerTable": {},
        "queueDatas": queues,
    }
    if topic.order and topic.perm & PERM_WRITE:
        # a producer then sends to these queues, and to no others
        ordered = [str(each["brokerName"]) for each in queues]
        document["orderTopicConf"] = order_text(ordered, topic.write_queues)
    return encoded(document)


def order_text(names: Sequence[str], queues: int) -> str:
    """The queues of an ordered topic, by each name of the broker that takes messages."""
    return ";".join(f"{name}:{queues}" for name in names)


def cluster_info(place: Placement) -> bytes:
    """ClusterInfo: the broker without its aliases, since a tool does its work once for each."""
    names = place.names
    return encoded(
        {
            "brokerAddrTable": {names.broker: _broker(names, names.broker, place.addresses)},
            "clusterAddrTable": {names.cluster: [names.broker]},
        }
    )


def topic_list(topics: Iterable[str]) -> bytes:
    """TopicList."""
    return encoded({"topicList": sorted(topics)})


def topic_stats(names: BrokerNames, topic: str, queues: int, ranges: Iterable[QueueRange]) -> bytes:
    """TopicStatsTable of one topic: its queues 0..`queues`-1, of which `ranges` has those that
    exist, and all others that exist. Objects are the table's keys, which only fastjson reads."""
    present = {each.queue_id: each for each in ranges}
    empty = QueueRange(topic, 0, 0, 0, -1, -1)
    rows = (
        (
            {"brokerName": names.broker, "queueId": queue_id, "topic": topic},
            {
                "lastUpdateTimestamp": max(found.max_timestamp, 0),
                "maxOffset": found.max_offset,
                "minOffset": found.min_offset,
            },
        )
        for queue_id in sorted({*range(queues), *present})
        for found in (present.get(queue_id, empty),)
    )
    return b'{"offsetTable":' + object_keys(rows) + b',"topicPutTps":0.0}'


def object_keys(rows: Iterable[tuple[Mapping[str, object], object]]) -> bytes:
    """A table whose keys are objects, as fastjson writes and reads it."""
    return b"{%s}" % b",".join(encoded(key) + b":" + encoded(value) for key, value in rows)


def encoded(document: object) -> bytes:
    """JSON as RocketMQ writes it, with keys in quotes, which all clients read."""
    return json.dumps(document, separators=(",", ":")).encode()


def _broker(names: BrokerNames, name: str, addresses: Mapping[int, str]) -> dict[str, object]:
    return {
        "brokerAddrs": {str(number): addresses[number] for number in sorted(addresses)},
        "brokerName": name,
        "cluster": names.cluster,
        "enableActingMaster": False,
    }


def _queues(broker: str, topic: TopicConfig, read: int, perm: int) -> dict[str, object]:
    flag = topic.members.get("topicSysFlag", 0)
    return {
        "brokerName": broker,
        "perm": perm,
        "readQueueNums": read,
        "topicSysFlag": flag if isinstance(flag, int) else 0,
        "writeQueueNums": topic.write_queues,
    }

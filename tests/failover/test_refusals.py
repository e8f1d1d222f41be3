"""A master that has lost only the coordinator goes on answering: nobody may act on its old tables.

Its way to the coordinator is cut, everything else stays. Each time its successor is killed, it is
for a moment the only node that calls itself master, and a producer that has requests without an
answer comes to it. What it refused was once taken for a proof that nothing is stored, and 68 of
6,684 messages were stored twice.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import grpc
import pytest

from fakes.coordinator_way import CoordinatorWay
from helpers.coordinators import EmbeddedProcess
from helpers.elected_nodes import SETTLE_S, ElectedNodes
from helpers.running import NodeProcess, wait_until
from tandemlog import Admin, Message, Producer, SendResult, TandemlogError
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, common_pb2
from tandemlog_server.cli.local.drills import QUEUES, TOPIC

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

IN_FLIGHT = 48
GROUP = "readers"


class Flood:
    """Producers that always have requests without an answer; `acknowledged` is by body."""

    def __init__(self, endpoints: Sequence[str], producers: int = 3) -> None:
        self.acknowledged: dict[bytes, SendResult] = {}
        self.failed: list[str] = []
        self._endpoints = list(endpoints)
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(number,)) for number in range(producers)
        ]

    def __enter__(self) -> Self:
        with Admin(self._endpoints) as admin:
            admin.create_topic(TOPIC, QUEUES)
        for thread in self._threads:
            thread.start()
        self.wait_more()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(SETTLE_S)

    def wait_more(self) -> None:
        before = len(self.acknowledged)
        wait_until(
            lambda: f"puts: {self.failed[-3:]}, {sum(t.is_alive() for t in self._threads)} send",
            lambda: len(self.acknowledged) > before + 4 * IN_FLIGHT,
            SETTLE_S,
        )

    def _send(self, name: int) -> None:
        number = 0
        with Producer(self._endpoints) as producer:
            while not self._end.is_set():
                sent = []
                for _ in range(IN_FLIGHT):
                    body = b"%d-%d" % (name, number)
                    sent.append((body, producer.send(Message(TOPIC, body))))
                    number += 1
                    self._end.wait(0.001)  # a request of its own
                for body, future in sent:
                    try:
                        self.acknowledged[body] = future.result(SETTLE_S)
                    except TandemlogError as error:
                        self.failed.append(str(error))

    def check(self, nodes: ElectedNodes) -> None:
        """Each node has each acknowledged message, at its place, and none twice."""
        nodes.wait_caught_up()
        for node in nodes.nodes:
            held = {
                (queue_id, record.queue_offset): record.body
                for queue_id in range(QUEUES)
                for record in node.read_queue(TOPIC, queue_id)
            }
            twice = len(held) - len(set(held.values()))
            assert not twice, f"{node.node_id} has {twice} of {len(held)} messages twice"
            for body, place in self.acknowledged.items():
                found = held.get((place.queue_id, place.queue_offset))
                assert found == body, f"{node.node_id} has {found!r} at {place}, not {body!r}"


@contextlib.contextmanager
def cluster(
    folder: Path, count: int, mode: str, min_in_sync: int
) -> Iterator[tuple[ElectedNodes, dict[str, CoordinatorWay]]]:
    """Nodes with a way to the coordinator each."""
    with contextlib.ExitStack() as stack:
        coordinator = stack.enter_context(EmbeddedProcess(folder))
        ways = [stack.enter_context(CoordinatorWay(coordinator.endpoint)) for _ in range(count)]
        nodes = ElectedNodes(
            folder,
            (),
            count=count,
            min_in_sync=min_in_sync,
            replication={"mode": mode},
            ways=[way.endpoint for way in ways],
        )
        stack.enter_context(nodes)
        yield nodes, {node.node_id: way for node, way in zip(nodes.nodes, ways, strict=True)}


def follows(node: NodeProcess, master: NodeProcess) -> bool:
    own, leading = node.status(), master.status()
    return own is not None and leading is not None and own.epoch == leading.epoch and own.in_sync


def leads(node: NodeProcess) -> bool:
    status = node.status()
    return status is not None and status.role == common_pb2.MASTER


@pytest.mark.parametrize(
    ("count", "mode", "min_in_sync", "cut"), [(3, "sync-degrade", 1, 1), (4, "sync", 2, 2)]
)
def test_what_a_deposed_master_refuses_is_not_stored_a_second_time(
    tmp_path: Path, count: int, mode: str, min_in_sync: int, cut: int
) -> None:
    with cluster(tmp_path, count, mode, min_in_sync) as (nodes, ways):
        with Flood(nodes.endpoints) as flood:
            old = nodes.wait_master()
            away = [old, *[each for each in nodes.nodes if each is not old][: cut - 1]]
            for each in away:
                ways[each.node_id].cut()
            rest = [each for each in nodes.nodes if each not in away]
            master = nodes.wait_master(other_than=old)
            flood.wait_more()
            for _ in range(2):
                others = [each for each in rest if each is not master]
                wait_until(
                    "a successor in sync",
                    lambda: any(follows(each, master) for each in others),  # noqa: B023
                    SETTLE_S,
                )
                flood.wait_more()
                killed = master
                killed.kill()
                # two that are cut off leave it alone: it can acknowledge with the killed one again
                wait_until("a successor", lambda: any(map(leads, others)), SETTLE_S)  # noqa: B023
                killed.start()
                master = nodes.wait_master(other_than=old)
                flood.wait_more()
            wait_until("the deposed one to answer", lambda: old.status() is not None)
            for each in away:
                ways[each.node_id].mend()
        assert not flood.failed
        flood.check(nodes)


def test_a_deposed_master_says_nothing_that_is_acted_on_for_ever(tmp_path: Path) -> None:
    """Asked directly, long after its successor has gone on."""
    with cluster(tmp_path, 3, "sync-degrade", 1) as (nodes, ways):
        with Admin(nodes.endpoints) as admin:
            admin.create_topic(TOPIC, QUEUES)
        old = nodes.wait_master()
        ways[old.node_id].cut()
        master = nodes.wait_master(other_than=old)
        with Admin(nodes.endpoints) as admin:
            admin.create_topic("newer", 1)
        with grpc.insecure_channel(old.endpoint) as channel:
            broker, topics = broker_pb2_grpc.BrokerStub(channel), admin_pb2_grpc.AdminStub(channel)
            answers: list[Any] = [
                broker.FetchOffsets(broker_pb2.FetchOffsetsRequest(group=GROUP)),
                broker.DescribeProducer(broker_pb2.DescribeProducerRequest(producer_id="p")),
                broker.DescribeGroup(broker_pb2.DescribeGroupRequest(group=GROUP)),
                broker.CommitOffsets(broker_pb2.CommitOffsetsRequest(group=GROUP)),
                broker.GroupHeartbeat(
                    broker_pb2.GroupHeartbeatRequest(group=GROUP, member_id="m", topics=[TOPIC])
                ),
                topics.ListTopics(admin_pb2.ListTopicsRequest(names=["newer"])),
                topics.ListTopics(admin_pb2.ListTopicsRequest(of_master=True)),
                topics.CreateTopic(admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name=TOPIC))),
                topics.DeleteTopic(admin_pb2.DeleteTopicRequest(name="newer")),
                topics.ListGroups(admin_pb2.ListGroupsRequest()),
            ]
        assert [each.error.code for each in answers] == [common_pb2.NOT_IN_SYNC] * len(answers)
        with grpc.insecure_channel(master.endpoint) as channel:
            topics = admin_pb2_grpc.AdminStub(channel)
            found = topics.ListTopics(admin_pb2.ListTopicsRequest(names=["newer"], of_master=True))
        assert found.master_epoch == nodes.epoch(master)
        assert [topic.name for topic in found.topics] == ["newer"]

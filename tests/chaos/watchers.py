"""Readers that never stop, and remember what they got: nothing that was read may vanish later.

    NodeWatcher   pulls from one node itself, also while it is cut off, deposed or behind; and asks
                  it whether it leads, in which epoch
    Follower      the client's own consumer, reading from slaves: what it delivers has no gaps
    GroupReader   the member of a group, which commits: it may get a message again, and passes none

All of them write into one `Witness`.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import grpc

from chaos.checks import Bodies, Finding, Place
from helpers.running import NodeProcess
from tandemlog import Consumer, Stream
from tandemlog.cluster.node import CHANNEL_OPTIONS
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.errors import TandemlogError
from tandemlog.format.record.record import decode_record
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, common_pb2
from tandemlog_server.cli.local.drills import QUEUES, TOPIC

PAUSE_S = 0.25
TIMEOUT_S = 2.0


class Witness:
    """What all readers have seen: bodies by place, and who led in which epoch."""

    def __init__(self) -> None:
        self.leaders: dict[int, set[str]] = {}
        self.findings: list[Finding] = []
        self._bodies: dict[Place, bytes] = {}

    def bodies(self) -> Bodies:
        """As of now."""
        return self._bodies.copy()

    def saw(self, place: Place, body: bytes, where: str) -> None:
        before = self._bodies.setdefault(place, body)
        if before != body:
            text = f"{where} gave {body!r} at {place}, where {before!r} was read before"
            self.findings.append(Finding("vanished", text))

    def leads(self, node_id: str, epoch: int) -> None:
        self.leaders.setdefault(epoch, set()).add(node_id)


class _Reader(ABC):
    """A thread that runs until the body of its `with` ends."""

    def __init__(self, name: str) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> "_Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)

    @abstractmethod
    def _run(self) -> None:
        """Until `_end` is set."""


class NodeWatcher(_Reader):
    """See the module."""

    def __init__(self, node: NodeProcess, witness: Witness) -> None:
        super().__init__(f"watch-{node.node_id}")
        self._node = node
        self._witness = witness
        self._next = dict.fromkeys(range(QUEUES), 0)

    def _run(self) -> None:
        with grpc.insecure_channel(self._node.endpoint, options=CHANNEL_OPTIONS) as channel:
            broker = broker_pb2_grpc.BrokerStub(channel)
            admin = admin_pb2_grpc.AdminStub(channel)
            while not self._end.wait(PAUSE_S):
                try:
                    self._pull(broker)
                    self._ask(admin)
                except grpc.RpcError:
                    continue  # it is down, paused or cut off

    def _pull(self, broker: broker_pb2_grpc.BrokerStub) -> None:
        positions = [
            broker_pb2.QueuePosition(topic=TOPIC, queue_id=queue_id, queue_offset=offset)
            for queue_id, offset in self._next.items()
        ]
        request = broker_pb2.PullRequest(positions=positions, max_bytes=1 << 20)
        for part in broker.Pull(request, timeout=TIMEOUT_S).queues:
            if part.status != broker_pb2.FOUND:
                continue  # its end, or it is behind the node that was read before it
            queue_id = positions[part.position_index].queue_id
            at = 0
            for _ in range(part.count):
                record = decode_record(part.records, at)
                place = queue_id, record.queue_offset
                self._witness.saw(place, record.body, self._node.node_id)
                at += record.size
            self._next[queue_id] = part.next_offset

    def _ask(self, admin: admin_pb2_grpc.AdminStub) -> None:
        answer = admin.DescribeCluster(admin_pb2.DescribeClusterRequest(), timeout=TIMEOUT_S)
        for each in answer.nodes:
            if each.node_id == self._node.node_id and each.role == common_pb2.MASTER:
                self._witness.leads(each.node_id, each.epoch)


class Follower(_Reader):
    """See the module. `delivered` counts the messages; a stream that failed is opened again where
    the one before had come to."""

    def __init__(self, endpoints: Sequence[str], witness: Witness) -> None:
        super().__init__("follow")
        self._endpoints = list(endpoints)
        self._witness = witness
        self._next = dict.fromkeys(range(QUEUES), 0)
        self.delivered = 0

    def _run(self) -> None:
        options = FollowOptions(on_data_loss="error", wait_ms=1_000)
        with Consumer(self._endpoints, read_from="slave", options=options) as consumer:
            while not self._end.is_set():
                start = {(TOPIC, queue_id): offset for queue_id, offset in self._next.items()}
                try:
                    with consumer.follow(TOPIC, start=start) as stream:
                        self._read(stream)
                except TandemlogError:
                    time.sleep(PAUSE_S)

    def _read(self, stream: Stream) -> None:
        while not self._end.is_set():
            try:
                batch = stream.next_batch(500)
            except TimeoutError:
                continue
            for message in batch or ():
                self.deliver((message.queue_id, message.queue_offset), message.body)

    def deliver(self, place: Place, body: bytes) -> None:
        queue_id, offset = place
        if offset != self._next[queue_id]:
            text = f"the consumer got {place}, not {self._next[queue_id]}"
            self._witness.findings.append(Finding("skipped", text))
        self._next[queue_id] = offset + 1
        self._witness.saw(place, body, "the consumer")
        self.delivered += 1


class GroupReader(_Reader):
    """See the module. `delivered` counts messages, each once; a stream that failed is opened again
    where its group has come to."""

    def __init__(self, endpoints: Sequence[str], witness: Witness) -> None:
        super().__init__("group")
        self._endpoints = list(endpoints)
        self._witness = witness
        self._next = dict.fromkeys(range(QUEUES), 0)

    @property
    def delivered(self) -> int:
        return sum(self._next.values())

    def _run(self) -> None:
        options = FollowOptions(wait_ms=1_000, auto_commit_ms=500)
        with Consumer(self._endpoints, group="chaos", options=options) as consumer:
            while not self._end.is_set():
                try:
                    with consumer.follow(TOPIC) as stream:
                        self._read(stream)
                except TandemlogError:
                    time.sleep(PAUSE_S)

    def _read(self, stream: Stream) -> None:
        while not self._end.is_set():
            try:
                batch = stream.next_batch(500)
            except TimeoutError:
                continue
            for message in batch or ():
                self.deliver((message.queue_id, message.queue_offset), message.body)

    def deliver(self, place: Place, body: bytes) -> None:
        queue_id, offset = place
        if offset > self._next[queue_id]:
            text = f"the group got {place}, and nothing from {self._next[queue_id]} on"
            self._witness.findings.append(Finding("skipped", text))
        self._next[queue_id] = max(self._next[queue_id], offset + 1)
        self._witness.saw(place, body, "the group")

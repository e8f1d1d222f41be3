"""The nodes under attack, seen from outside: their memory, their logs, and what must survive.

The canary is a message that was acknowledged before: after everything it is read from master and
slave as it was sent, a put and a pull work, and the slave is in sync.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

import tandemlog
from fakes.batches import Put
from fuzz.methods import TOPIC, put_request
from helpers.running import NodeProcess, Running, wait_until
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, common_pb2
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.compare_stores import compare
from tandemlog_server.storage.tools.verify import verify

CANARY = "Canary"
LOG_BYTES_PER_CALL = 40
LOG_BYTES_FREE = 256 << 10
RETRY_S = 60.0


@dataclass
class Attacked:
    """A master and a slave, and what was said of them at the start."""

    cluster: Running
    bodies: list[bytes] = field(default_factory=list)
    logs: dict[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> dict[str, NodeProcess]:
        return {"master": self.cluster.master, "slave": self.cluster.slaves[0]}

    @property
    def endpoints(self) -> dict[str, str]:
        return {name: node.endpoint for name, node in self.nodes.items()}

    def prepare(self) -> None:
        """Topics, and the canaries; then everything is in sync."""
        self.make_topic(TOPIC)
        self.make_topic(CANARY)
        for number in range(20):
            self.put_canary(b"canary %d" % number)
        with grpc.insecure_channel(self.cluster.master.endpoint) as channel:
            stub = broker_pb2_grpc.BrokerStub(channel)
            keys = b"KEYS\x01fuzz-key\x02TAGS\x01TagA\x02"
            puts = [Put(TOPIC, number % 4, b"seed" * 20, keys) for number in range(40)]
            (answer,) = stub.Append(iter([put_request(puts)]), timeout=20)
            assert answer.status == broker_pb2.PUT_OK, answer.error.message
        self.cluster.wait_in_sync()
        self.logs = {name: node.log.stat().st_size for name, node in self.nodes.items()}

    def make_topic(self, name: str) -> None:
        """As a client would: a BUSY or NOT_IN_SYNC is tried again."""
        topic = admin_pb2.Topic(name=name, read_queues=4, write_queues=4, perm=6)

        def made() -> bool:
            with grpc.insecure_channel(self.cluster.master.endpoint) as channel:
                stub = admin_pb2_grpc.AdminStub(channel)
                answer = stub.CreateTopic(admin_pb2.CreateTopicRequest(topic=topic), timeout=20)
            return not answer.HasField("error") or answer.error.code == common_pb2.TOPIC_EXISTS

        wait_until(f"topic {name} to be made", made, RETRY_S)

    def put_canary(self, body: bytes) -> None:
        """An acknowledged message; raises where none is acknowledged any more."""
        endpoint = self.cluster.master.endpoint
        with tandemlog.Producer(endpoint) as producer:
            producer.send(tandemlog.Message(CANARY, body, queue_id=0)).result(RETRY_S)
        self.bodies.append(body)

    def check(self, calls: int) -> None:
        """After the attack: alive, quiet logs, everything acknowledged is there, still works."""
        for name, node in self.nodes.items():
            assert node.alive, f"the {name} ended: {node.tail()}"
            self.check_log(name, calls)
        self.put_canary(b"after %d calls" % calls)
        wait_until("the slave to be in sync", self._slave_in_sync, RETRY_S)
        self.cluster.wait_in_sync()
        for name, node in self.nodes.items():
            held = [record.body for record in node.read_queue(CANARY, 0)]
            assert held == self.bodies, f"the {name} lost or changed acknowledged messages"

    def check_log(self, name: str, calls: int) -> None:
        node = self.nodes[name]
        text = node.log.read_text(errors="replace")[self.logs[name] :]
        at = text.find("Traceback (most recent call last)")
        assert at < 0, (
            f"a traceback in the log of the {name}:\n{text[max(0, at - 500) : at + 3000]}"
        )
        most = LOG_BYTES_FREE + LOG_BYTES_PER_CALL * calls
        assert len(text) <= most, (
            f"{calls} calls wrote {len(text)} bytes of log on the {name}, the last:\n{text[-2000:]}"
        )

    def check_stores(self) -> None:
        """Stop both: each store is whole, and they are equal."""
        self.cluster.wait_in_sync()
        assert self.cluster.slaves[0].stop() == 0
        assert self.cluster.master.stop() == 0
        configs = [_config(node) for node in self.nodes.values()]
        for config in configs:
            faults = [str(fault) for fault in verify(config).faults]
            assert faults == [], faults
        one, other = configs
        report = compare(one, other)
        faults = [str(fault) for fault in report.faults]
        assert faults == [], faults

    def _slave_in_sync(self) -> bool:
        status = self.cluster.slaves[0].status()
        return status is not None and status.in_sync

    def memory(self) -> dict[str, int]:
        return {name: anonymous_bytes(node) for name, node in self.nodes.items()}


@contextmanager
def attacked(folder: Path, **settings: object) -> Iterator[Attacked]:
    """A master and a slave in sync, with small stores below `folder`."""
    with Running(folder, slaves=1, min_in_sync=2, **settings) as cluster:  # type: ignore[arg-type]
        cluster.wait_in_sync()
        made = Attacked(cluster)
        made.prepare()
        yield made


def anonymous_bytes(node: NodeProcess) -> int:
    """Memory of a node without the pages of its files, which the kernel may take back."""
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


def _config(node: NodeProcess) -> StoreConfig:
    store = node.settings["store"]
    return StoreConfig(
        directory=node.store,
        commit_log_file_size=store["commit_log_file_size"],
        queue_file_size=store["queue_file_size"],
        index_slots=store["index_slots"],
        index_entries=store["index_entries"],
    )

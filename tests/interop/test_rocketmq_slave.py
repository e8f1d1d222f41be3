"""A real RocketMQ slave broker follows a tandemlog master, and takes over from it.

Its log must equal ours byte for byte, whatever was killed meanwhile, and as a master it must serve
every message that was acknowledged, and the offsets that groups had committed.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import tandemlog
from helpers.running import NodeProcess, Running, free_ports, wait_until
from interop.jars import VERSION
from interop.rocketmq import BROKER_NAME, CLUSTER, Broker, NameServer, StoreSizes
from interop.store_client import StoreClient
from tandemlog import Message, ProducerOptions
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, common_pb2
from tandemlog_server.storage.metadata.json_file import parse

pytestmark = [pytest.mark.interop, pytest.mark.lane("live")]

SIZES = StoreSizes(
    commit_log_file_size=262_144, queue_file_size=4_000, index_slots=200, index_entries=800
)
QUEUES = 3
GROUP = "GID_moving"
SLAVE = "rocketmq:127.0.0.1"
CATCH_UP_S = 120
TABLES_S = 200
"""A slave copies the tables 10 s after its start, then every minute."""

Seen = dict[tuple[int, int], tuple[str, str, bytes]]
"""(queue id, queue offset) -> (offset message id, key, body)."""


class Cluster:
    """A name server, our master, and a slave broker of RocketMQ with a store of its own."""

    def __init__(self, folder: Path, **rocketmq: Any) -> None:
        self.listen, self.slave_port = free_ports(2)
        self.name_server = NameServer(folder / "namesrv")
        self.name_server.start()
        self.slave = Broker(folder / "slave")
        self.slave_store = folder / "slave-store"
        # a message is looked up by its id at the address that the id names
        store = {
            "commit_log_file_size": SIZES.commit_log_file_size,
            "queue_file_size": SIZES.queue_file_size,
            "index_slots": SIZES.index_slots,
            "index_entries": SIZES.index_entries,
            "store_host": f"127.0.0.1:{self.slave_port}",
        }
        section = {
            "listen": f"127.0.0.1:{self.listen}",
            "broker_name": BROKER_NAME,
            "cluster_name": CLUSTER,
            "name_servers": [f"127.0.0.1:{self.name_server.port}"],
            **rocketmq,
        }
        self.running = Running(
            folder,
            flush="sync",
            min_in_sync=2 if rocketmq.get("in_sync_slaves") else 1,
            store=store,
            extra={"rocketmq": section},
        )
        self.seen: Seen = {}

    @property
    def node(self) -> NodeProcess:
        return self.running.master

    def start_slave(self) -> None:
        self.slave.start(
            self.name_server,
            self.slave_store,
            SIZES,
            brokerId=1,
            brokerRole="SLAVE",
            listenPort=self.slave_port,
            haListenPort=self.slave_port + 1,
            # it asks for timers too
            timerWheelEnable="true" if VERSION.startswith("5") else "false",
        )

    def start_slave_as_master(self) -> None:
        self.slave.start(
            self.name_server,
            self.slave_store,
            SIZES,
            brokerRole="ASYNC_MASTER",
            listenPort=self.slave_port,
            haListenPort=self.slave_port + 1,
        )

    def row(self) -> common_pb2.NodeStatus | None:
        """The slave in the master's list of nodes."""
        with grpc.insecure_channel(self.node.endpoint) as channel:
            answer = admin_pb2_grpc.AdminStub(channel).DescribeCluster(
                admin_pb2.DescribeClusterRequest(), timeout=30
            )
        return next((each for each in answer.nodes if each.node_id == SLAVE), None)

    def wait_caught_up(self) -> tuple[common_pb2.NodeStatus, common_pb2.NodeStatus]:
        """Until the slave holds the whole log; its row and the master's then."""
        found: list[tuple[common_pb2.NodeStatus, common_pb2.NodeStatus]] = []

        def caught_up() -> bool:
            self.slave.check_alive()
            row, status = self.row(), self.node.status()
            if row is None or status is None:
                return False
            found[:] = [(row, status)]
            return status.wrote_offset == row.wrote_offset == status.confirm_offset

        wait_until(
            lambda: f"the slave broker to hold the whole log: {found}", caught_up, CATCH_UP_S
        )
        return found[0]

    def in_sync(self) -> bool:
        self.slave.check_alive()
        row = self.row()
        return row is not None and row.in_sync

    def put(self, count: int, prefix: str) -> None:
        """Messages of all sizes, so that records cross frames and files."""
        futures = []
        with tandemlog.Producer(self.node.endpoint) as producer:
            for number in range(count):
                body = f"{prefix} {number} ".encode() * (1 + number % 50)
                message = Message(
                    "Orders", body, keys=f"{prefix}-{number}", queue_id=number % QUEUES
                )
                futures.append((message, producer.send(message)))
            for message, future in futures:
                result = future.result(60)
                place = (result.queue_id, result.queue_offset)
                self.seen[place] = result.msg_id, str(message.keys), message.body

    def close(self) -> None:
        self.slave.kill()
        self.running.close()
        self.name_server.kill()


@contextlib.contextmanager
def cluster(folder: Path, **rocketmq: Any) -> Iterator[Cluster]:
    made = Cluster(folder, **rocketmq)
    try:
        made.running.start()
        yield made
    finally:
        made.close()


def create_topic(node: NodeProcess) -> None:
    with tandemlog.Admin(node.endpoint) as admin:
        admin.create_topic("Orders", queues=QUEUES)


def log_of(store: Path, end: int) -> bytes:
    files = sorted((store / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files)[:end]


def offsets_in(store: Path) -> object:
    path = store / "config" / "consumerOffset.json"
    if not path.exists() or not path.read_bytes().strip():
        return None
    table = parse(path.read_bytes()).get("offsetTable")
    return table.get(f"Orders@{GROUP}") if isinstance(table, dict) else None


def has_topic(store: Path) -> bool:
    path = store / "config" / "topics.json"
    return path.exists() and b'"Orders"' in path.read_bytes()


def check_served(client: StoreClient, seen: Seen) -> None:
    """By offset, key and id, through RocketMQ's own client."""
    rows = [
        row
        for queue_id in range(QUEUES)
        for row in client.call("pull", "Orders", queue_id)["messages"]
    ]
    found = {(row["queue_id"], row["queue_offset"]): row["offset_msg_id"] for row in rows}
    assert found == {place: message_id for place, (message_id, _, _) in seen.items()}
    for place in sorted(seen)[:: max(1, len(seen) // 40)]:
        message_id, key, body = seen[place]

        def by_key(key: str = key) -> list[tuple[int, int]]:
            return [
                (row["queue_id"], row["queue_offset"])
                for row in client.call("key", "Orders", key)["messages"]
            ]

        wait_until(f"the broker's index gives {key}", lambda: by_key() == [place])  # noqa: B023
        message = client.call("view", "Orders", message_id)["message"]
        assert (message["queue_id"], message["queue_offset"]) == place
        assert message["length"] == len(body)


def test_a_slave_broker_follows_and_takes_over(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        create_topic(made.node)
        made.put(800, "before")
        made.start_slave()
        made.put(800, "while-it-comes")
        with tandemlog.Admin(made.node.endpoint) as admin:
            admin.commit(GROUP, {("Orders", 0): 17, ("Orders", 2): 4})
        made.wait_caught_up()
        made.put(300, "while-it-follows")
        made.wait_caught_up()

        made.slave.kill()
        made.put(500, "while-it-is-dead")
        made.start_slave()
        made.wait_caught_up()
        wait_until(
            "the slave broker to copy the group's offsets",
            lambda: offsets_in(made.slave_store) == {0: 17, 2: 4},
            TABLES_S,
        )

        made.node.kill()
        made.node.start()
        made.put(500, "after-our-restart")
        row, status = made.wait_caught_up()
        assert (row.state, row.in_sync, row.endpoint) == ("following", False, "")
        assert status.wrote_offset > 3 * SIZES.commit_log_file_size
        assert made.node.stop() == 0
        made.slave.stop()
        end = status.wrote_offset
        assert log_of(made.slave_store, end) == log_of(made.node.store, end)

        made.start_slave_as_master()
        client = StoreClient(made.name_server, tmp_path / "client")
        try:
            client.wait_for("Orders", 0, broker=made.slave)
            check_served(client, made.seen)
            sent = client.call("send", "Orders", 1, 5, "theirs")["sent"]
            assert {row["status"] for row in sent} == {"SEND_OK"}
        finally:
            client.close()
        made.slave.stop()
        assert offsets_in(made.slave_store) == {0: 17, 2: 4}


def test_an_empty_slave_broker_gets_a_log_that_retention_has_shortened(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        create_topic(made.node)
        made.put(1_000, "all")
        assert made.node.stop() == 0
        files = sorted((made.node.store / "commitlog").iterdir())
        files[0].unlink()
        made.node.start()
        made.put(200, "later")
        made.start_slave()
        _, status = made.wait_caught_up()
        assert status.min_offset == SIZES.commit_log_file_size
        wait_until("the slave to copy the topics", lambda: has_topic(made.slave_store), TABLES_S)
        assert made.node.stop() == 0
        made.slave.stop()
        held = status.wrote_offset - status.min_offset
        assert log_of(made.slave_store, held) == log_of(made.node.store, held)

        made.start_slave_as_master()
        client = StoreClient(made.name_server, tmp_path / "client")
        try:
            client.wait_for("Orders", 0, broker=made.slave)
            rows = client.call("pull", "Orders", 0)["messages"]
        finally:
            client.close()
        found = {(0, row["queue_offset"]): row["offset_msg_id"] for row in rows}
        expected = {place: each[0] for place, each in made.seen.items() if place[0] == 0}
        assert 0 < len(found) < len(expected)
        assert found.items() <= expected.items()
        assert max(found) == max(expected)


def test_a_slave_broker_counts(tmp_path: Path) -> None:
    """min_in_sync = 2 with one broker beside the master: no put without it."""
    with cluster(tmp_path, in_sync_slaves=["127.0.0.1"]) as made:
        made.start_slave()
        wait_until("the slave broker to join the in-sync set", made.in_sync, CATCH_UP_S)
        create_topic(made.node)
        made.put(300, "together")
        made.wait_caught_up()
        # idle, it speaks every 5 s only, and stays
        deadline = time.monotonic() + 12
        while time.monotonic() < deadline:
            assert made.in_sync()
            time.sleep(0.2)
        made.put(10, "after-a-rest")

        made.slave.kill()
        options = ProducerOptions(delivery_timeout_ms=4_000)
        with (
            tandemlog.Producer(made.node.endpoint, options) as producer,
            pytest.raises(tandemlog.TandemlogError),
        ):
            producer.send(Message("Orders", b"alone", queue_id=0)).result(60)
        made.start_slave()
        wait_until("the slave broker to be back", made.in_sync, CATCH_UP_S)
        made.put(100, "again")

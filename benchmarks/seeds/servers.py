"""What is compared: a node with its door open, RocketMQ's broker, Kafka's.

All of them flush in the background. Without a slave each is alone with its log; with one, a send is
answered when the slave has it: durable there at a node, received at a broker. The JVMs have 2 GB
for objects, both compilers and G1, as the start scripts of RocketMQ and Kafka choose it; all files
have RocketMQ's own sizes.
"""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.nodes import cluster, cpu_seconds_of, memory_mb
from benchmarks.peers import kafka
from benchmarks.seeds.programs import FULL_SPEED
from interop.rocketmq import Broker, NameServer, StoreSizes
from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.wire.remoting import SUCCESS, Command, CommandReader, encode_command

SIZES = StoreSizes(1 << 30, 6_000_000, 5_000_000, 20_000_000)
HEAP = "2g"
READ_AND_WRITE = 6
"""RocketMQ's permission of a topic."""


@dataclass(frozen=True, slots=True)
class Server:
    """`name_server` is HOST:PORT for a client, `port` where the requests of one go, of loopback."""

    name: str
    name_server: str
    port: int
    process: int

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far, all threads."""
        return cpu_seconds_of(self.process)

    @property
    def memory_mb(self) -> float:
        return memory_mb(self.process)


@contextlib.contextmanager
def node(folder: Path, slave: bool = False) -> Iterator[Server]:
    """A node with the door for RocketMQ's clients."""
    pair: dict[str, Any] = {"slaves": 1, "replication": "sync", "min_in_sync": 2} if slave else {}
    with cluster(folder, 1, rocketmq=True, coordinator="none", **pair) as local:
        master = local.nodes[0]
        assert master.process is not None
        port = int(master.rocketmq_endpoint.rpartition(":")[2])
        yield Server("tandemlog", master.rocketmq_endpoint, port, master.process.pid)


@contextlib.contextmanager
def broker(folder: Path, slave: bool = False) -> Iterator[Server]:
    """RocketMQ's broker, and its name server."""
    name_server = NameServer(folder / "namesrv")
    options = (*FULL_SPEED, f"-Xms{HEAP}", "-XX:-UseBiasedLocking")
    server = Broker(folder / "broker", options=options, heap=HEAP)
    copy = Broker(folder / "copy", options=options, heap=HEAP)
    # with one of two in sync, which is what a broker starts with, nobody waits for the slave
    role: dict[str, Any] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2} if slave else {}
    try:
        name_server.start()
        server.start(name_server, folder / "store", SIZES, **role)
        server.wait_until_serving()
        if slave:
            place = folder / "copied"
            copy.start(name_server, place, SIZES, brokerId=1, brokerRole="SLAVE")
            copy.wait_until_serving()
        assert server.process is not None
        address = f"127.0.0.1:{name_server.port}"
        yield Server("RocketMQ", address, server.port, server.process.pid)
    finally:
        copy.kill()
        server.kill()
        name_server.kill()


@contextlib.contextmanager
def kafka_broker(folder: Path) -> Iterator[Server]:
    with kafka.broker(folder) as (address, process):
        yield Server("Kafka", address, int(address.rpartition(":")[2]), process)


def make_topics(server: Server, prefix: str, topics: int, queues: int) -> None:
    """`prefix`-0000 and so on, at a node or a broker. Raises RuntimeError for a refusal."""
    commands = CommandReader()
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        for number in range(topics):
            fields = {
                "topic": topic_name(prefix, number),
                "defaultTopic": "TBW102",
                "readQueueNums": str(queues),
                "writeQueueNums": str(queues),
                "perm": str(READ_AND_WRITE),
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": "",
            }
            request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, number, fields=fields)
            connection.sendall(encode_command(request))
            response = _response(connection, commands)
            if response.code != SUCCESS:
                raise RuntimeError(f"{server.name} made no topic: {response.remark}")


def topic_name(prefix: str, number: int) -> str:
    return f"{prefix}-{number:04d}"


def _response(connection: socket.socket, commands: CommandReader) -> Command:
    while data := connection.recv(64 << 10):
        for response in commands.feed(data):
            return response
    raise ProtocolError("the connection was closed")

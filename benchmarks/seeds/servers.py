"""What is compared: a node with its door open, RocketMQ's broker, Kafka's, each alone with its log.

All of them flush by themselves and have no slave. The JVMs have 2 GB for objects, both compilers
and G1, as the start scripts of RocketMQ and Kafka choose it; all files have RocketMQ's own sizes.
"""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.nodes import cluster, cpu_seconds_of, memory_mb
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
def node(folder: Path) -> Iterator[Server]:
    """A node with the door for RocketMQ's clients."""
    with cluster(folder, 1, rocketmq=True) as local:
        [only] = local.nodes
        assert only.process is not None
        port = int(only.rocketmq_endpoint.rpartition(":")[2])
        yield Server("tandemlog", only.rocketmq_endpoint, port, only.process.pid)


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[Server]:
    """RocketMQ's broker, and its name server."""
    name_server = NameServer(folder / "namesrv")
    server = Broker(
        folder / "broker", options=(*FULL_SPEED, f"-Xms{HEAP}", "-XX:-UseBiasedLocking"), heap=HEAP
    )
    try:
        name_server.start()
        server.start(name_server, folder / "store", SIZES)
        server.wait_until_serving()
        assert server.process is not None
        address = f"127.0.0.1:{name_server.port}"
        yield Server("RocketMQ", address, server.port, server.process.pid)
    finally:
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

"""A RocketMQ broker that a test holds in its hand: a log, tables, the HA wire and remoting.

    broker = FakeRocketmq(LogBuilder(Path("/unused"), 4096)); await broker.start()

It does on the wire what brokers of 4.9.7 and 5.5.0 were seen to do, the odd meaning of 0 included.
"""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field

from fakes.log_builder import LogBuilder
from tandemlog_server.rocketmq.wire.frames import OffsetReader, encode_header
from tandemlog_server.rocketmq.wire.remoting import (
    NOT_SUPPORTED,
    Command,
    CommandReader,
    encode_command,
)
from tandemlog_server.rocketmq.wire.requests import (
    GET_ALL_CONSUMER_OFFSET,
    GET_ALL_DELAY_OFFSET,
    GET_ALL_SUBSCRIPTION_GROUP_CONFIG,
    GET_ALL_TOPIC_CONFIG,
    GET_BROKER_CLUSTER_INFO,
    GET_BROKER_CONFIG,
    GET_BROKER_RUNTIME_INFO,
)

POLL_S = 0.005


def lost_tail(builder: LogBuilder, offset: int) -> None:
    """The broker has crashed, and its log ends at the record that begins at `offset`."""
    for base, data in builder._files.items():
        if base + len(data) > offset:
            at = max(0, offset - base)
            data[at:] = bytes(len(data) - at)
    builder.end = offset
    builder.records = [each for each in builder.records if each.physical_offset < offset]
    builder._next.clear()
    for each in builder.records:
        builder._next[each.topic, each.queue_id] = each.queue_offset + 1
    builder._time += 60_000


def log_bytes(builder: LogBuilder, start: int, end: int) -> bytes:
    """The log's bytes start .. end-1."""
    found = b""
    while start < end:
        base = start - start % builder.file_size
        piece = bytes(builder._files[base][start - base : end - base])
        found += piece
        start += len(piece)
    return found


def default_tables() -> dict[int, bytes]:
    version = {"counter": 1, "stateVersion": 0, "timestamp": 5}
    topic = {"topicName": "Orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    return {
        GET_ALL_TOPIC_CONFIG: json.dumps(
            {
                "dataVersion": version,
                "topicConfigTable": {"Orders": topic},
                "mappingDataVersion": {},
            }
        ).encode(),
        GET_ALL_SUBSCRIPTION_GROUP_CONFIG: json.dumps(
            {"dataVersion": version, "subscriptionGroupTable": {"theirs": {"groupName": "theirs"}}}
        ).encode(),
        GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"Orders@theirs":{0:3,1:2}}}',
        GET_ALL_DELAY_OFFSET: b'{"offsetTable":{3:7}}',
    }


@dataclass
class FakeRocketmq:
    """`acks`: the numbers that slaves have sent, by connection; `most`: how many log bytes
    the next connections get before they break off; all, if it is empty."""

    builder: LogBuilder
    cluster: str = "shop"
    name: str = "broker-a"
    role: str = "ASYNC_MASTER"
    permission: int = 6
    begin: int = 0
    frame_bytes: int = 1_000
    most: list[int] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    tables: dict[int, bytes] = field(default_factory=default_tables)
    acks: list[list[int]] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    port: int = 0
    ha_port: int = 0
    boot_ms: int = 1_000

    async def start(self) -> None:
        """Again on the same ports, if it was stopped: as another process."""
        self.boot_ms += 1
        self._server = await asyncio.start_server(self._remoting, "127.0.0.1", self.port)
        self._ha_server = await asyncio.start_server(self._ha, "127.0.0.1", self.ha_port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.ha_port = self._ha_server.sockets[0].getsockname()[1]
        self._links: set[asyncio.StreamWriter] = set()

    async def stop(self) -> None:
        for server in (self._server, self._ha_server):
            server.close()
        for link in self._links:
            link.close()
        await asyncio.sleep(0)

    @property
    def address(self) -> str:
        return f"rocketmq://127.0.0.1:{self.port}"

    def log(self) -> bytes:
        return log_bytes(self.builder, self.begin, self.builder.end)

    # ---- the wires

    async def _ha(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.add(writer)
        offsets, numbers = OffsetReader(), list[int]()
        self.acks.append(numbers)
        sending: asyncio.Task[None] | None = None
        try:
            while data := await reader.read(4096):
                numbers += offsets.feed(data)
                if len(numbers) > 1 and numbers[-1] > self.builder.end:
                    break  # as 4.9 does: it cannot have that
                if sending is None and numbers:
                    # the last one that waited
                    sending = asyncio.create_task(self._send(numbers[-1], writer))
        except OSError:
            pass
        finally:
            if sending is not None:
                sending.cancel()
            writer.close()

    async def _send(self, asked: int, writer: asyncio.StreamWriter) -> None:
        size = self.builder.file_size
        at = asked if asked else self.builder.end - self.builder.end % size
        first, most = at, self.most.pop(0) if self.most else None
        with contextlib.suppress(OSError):
            while True:
                count = min(self.frame_bytes, size - at % size, self.builder.end - at)
                if most is not None:
                    count = min(count, most - (at - first))
                    if count <= 0:
                        writer.close()
                        return
                if count <= 0:
                    await asyncio.sleep(POLL_S)
                    continue
                writer.write(encode_header(at, count) + log_bytes(self.builder, at, at + count))
                await writer.drain()
                at += count

    async def _remoting(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.add(writer)
        commands = CommandReader()
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                for command in commands.feed(data):
                    writer.write(encode_command(self._answer(command)))
        writer.close()

    def _answer(self, command: Command) -> Command:
        self.requests.append(command.code)
        if command.code == GET_BROKER_CONFIG:
            return command.response(self._config())
        if command.code == GET_BROKER_RUNTIME_INFO:
            table = {
                "brokerVersionDesc": "V5_5_0",
                "bootTimestamp": str(self.boot_ms),
                "commitLogMinOffset": str(self.begin),
                "commitLogMaxOffset": str(self.builder.end),
            }
            return command.response(json.dumps({"table": table}).encode())
        if command.code == GET_BROKER_CLUSTER_INFO:
            place = f'{{0:"127.0.0.1:{self.port}"}}'
            return command.response(
                f'{{"brokerAddrTable":{{"{self.name}":{{"brokerAddrs":{place}}}}}}}'.encode()
            )
        if command.code in self.tables:
            return command.response(self.tables[command.code])
        return command.response(code=NOT_SUPPORTED, remark="not supported")

    def _config(self) -> bytes:
        lines = {
            "brokerClusterName": self.cluster,
            "brokerName": self.name,
            "brokerRole": self.role,
            "brokerPermission": str(self.permission),
            "haListenPort": str(self.ha_port),
            "mappedFileSizeCommitLog": str(self.builder.file_size),
            **self.settings,
        }
        return "".join(f"{key}={value}\n" for key, value in lines.items()).encode()

"""Clients of RocketMQ in the world of parked sends: producers and consumers, with default settings.

    send: 3 s in all ─▶ a queue ─▶ attempt 1 ─▶ lost, refused ─▶ a queue of another name ─▶ 2 ─▶ 3
                                     the same UNIQ_KEY, born anew
    pull: parked for 15 s, given up after 30 s; the next one goes to the broker id in the answer
    route: every 30 s, from any node that answers

A client of the old kind (4.9.7) does not notice a connection that ends in an orderly way: what it
has asked by it fails when its time is over.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from sim.parking_network import End, Process
from sim.parking_store import QUEUES, TOPIC
from tandemlog.format.record.record import Record, decode_record
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.wire.remoting import Command, CommandReader, encode_command

if TYPE_CHECKING:
    from sim.parking_world import World

SEND_S = 3.0
ATTEMPTS = 3
ROUTE_S = 30.0
ROUTE_TIMEOUT_S = 3.0
PULL_S = 30.0
PARKED_S = 15.0
PULL_AGAIN_S = 3.0
REST_S = 2.5
"""After a fault, until all is as if nothing had been."""
TRIED_AGAIN = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)
NOT_SAFE = frozenset(
    {
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


@dataclass
class Attempt:
    """Of a call: `born` in ms; the node and the queue at which it was asked to be stored."""

    born: int
    host: str
    queue_id: int


@dataclass(eq=False)
class Call:
    """One call of a program to `send`. `ended` says how: "acknowledged", or why not."""

    key: str
    body: bytes
    began: float
    attempts: list[Attempt] = field(default_factory=list)
    ended: str = ""
    took: float = 0.0
    place: tuple[int, int, int] | None = None
    """Log offset, queue, offset in the queue."""


class Channel(asyncio.Protocol):
    """A connection of a client."""

    def __init__(self, *, old: bool) -> None:
        self._old = old
        self._reader = CommandReader()
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._opaque = count(1)
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, End)
        self._end = transport
        self.open = True

    def data_received(self, data: bytes) -> None:
        for command in self._reader.feed(data):
            future = self._waiting.pop(command.opaque, None)
            if future is not None and not future.done():
                future.set_result(command)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._old and exc is None:
            return
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the channel is closed"))

    async def ask(
        self, code: int, fields: Mapping[str, object], body: bytes, within: float
    ) -> Command:
        """Raises ConnectionError, TimeoutError."""
        opaque = next(self._opaque)
        texts = {name: str(value) for name, value in fields.items()}
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = future
        self._end.write(encode_command(Command(code, opaque, fields=texts, body=body)))
        try:
            async with asyncio.timeout(within):
                return await future
        finally:
            self._waiting.pop(opaque, None)


class Client(Process):
    """A process with RocketMQ's client in it."""

    def __init__(self, world: "World", host: str) -> None:
        super().__init__(world.network, host)
        self.world = world
        self.chance = Random(f"{host} of {world.seed}")
        self.old = self.chance.random() < 0.3
        self.table: dict[str, dict[int, str]] = {}
        self.queues: list[tuple[str, int]] = []
        self._channels: dict[str, Channel] = {}
        self._connecting: dict[str, asyncio.Task[Channel]] = {}
        self._server = ""

    async def ask(
        self,
        address: str,
        code: int,
        fields: Mapping[str, object],
        within: float,
        body: bytes = b"",
    ) -> Command:
        """Raises ConnectionError, TimeoutError."""
        began = self.loop.time()
        async with asyncio.timeout(within):
            channel = await self._channel(address)
        left = within - (self.loop.time() - began)
        if left <= 0:
            raise TimeoutError
        return await channel.ask(code, fields, body, left)

    async def _channel(self, address: str) -> Channel:
        channel = self._channels.get(address)
        if channel is not None and channel.open:
            return channel
        if address not in self._connecting:
            self._connecting[address] = self.loop.create_task(self._connect(address))
            self._connecting[address].add_done_callback(
                lambda task: (self._connecting.pop(address), task.cancelled() or task.exception())
            )
        return await asyncio.shield(self._connecting[address])

    async def _connect(self, address: str) -> Channel:
        host, _, port = address.partition(":")
        async with asyncio.timeout(SEND_S):
            channel = Channel(old=self.old)
            await self.loop.create_connection(lambda: channel, host, int(port))
        self._channels[address] = channel
        return channel

    async def look(self) -> bool:
        """Ask for the route; whether a name server has answered."""
        from_all = [each for each in self.world.doors if each != self._server]
        self.chance.shuffle(from_all)
        for server in [self._server, *from_all] if self._server else from_all:
            try:
                answer = await self.ask(
                    server,
                    RequestCode.GET_ROUTE_INFO_BY_TOPIC,
                    {"topic": TOPIC},
                    ROUTE_TIMEOUT_S,
                )
            except (OSError, TimeoutError):
                continue
            if answer.code != ResponseCode.SUCCESS:
                continue
            self._server = server
            self._keep(json.loads(answer.body))
            return True
        return False

    def _keep(self, document: dict[str, Any]) -> None:
        self.table = {
            each["brokerName"]: {int(number): at for number, at in each["brokerAddrs"].items()}
            for each in document["brokerDatas"]
        }
        self.queues = [
            (each["brokerName"], queue)
            for each in document["queueDatas"]
            for queue in range(each["writeQueueNums"])
        ]

    async def look_again(self) -> None:
        while True:
            found = await self.look()
            await asyncio.sleep(ROUTE_S if found else 1.0)


class Producer(Client):
    """Sends from two threads."""

    def __init__(self, world: "World", host: str) -> None:
        super().__init__(world, host)
        self._next = 0
        self._serial = count(1)
        self._born = 0
        self.loop.begin(self.look_again())
        for _ in range(2):
            self.loop.begin(self._go_on())

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0.05, 1.5))
            if self.queues and self.world.sending:
                await self.send()

    async def send(self) -> None:
        """As sendDefaultImpl."""
        key = f"{self.host}-{next(self._serial)}"
        call = Call(key, key.encode() + b"." * self.chance.randrange(60), self.loop.time())
        self.world.checks.begun(call)
        name = ""
        call.ended = "retries are used up"
        for _ in range(ATTEMPTS):
            left = SEND_S - (self.loop.time() - call.began)
            if left <= 0:
                call.ended = "time is over"
                break
            name, queue_id = self._queue(name)
            try:
                answer = await self._attempt(call, name, queue_id, left)
            except (OSError, TimeoutError) as problem:
                call.ended = f"time is over: {problem!r}"
                continue
            if answer.code == ResponseCode.SUCCESS:
                call.ended = "acknowledged"
                fields = answer.fields
                call.place = (
                    int(fields["msgId"][-16:], 16),
                    int(fields["queueId"]),
                    int(fields["queueOffset"]),
                )
                break
            if answer.code in NOT_SAFE:
                call.ended = f"not safe: {answer.code}"
                break
            call.ended = f"{answer.code}: {answer.remark}"
            if answer.code not in TRIED_AGAIN:
                break
        call.took = self.loop.time() - call.began
        self.world.checks.done(call)

    def _queue(self, last: str) -> tuple[str, int]:
        """As selectOneMessageQueue, of another name than the last one."""
        for _ in self.queues:
            self._next += 1
            found = self.queues[self._next % len(self.queues)]
            if found[0] != last:
                return found
        return found

    async def _attempt(self, call: Call, name: str, queue_id: int, left: float) -> Command:
        self._born = max(self._born + 1, self.world.clock.now_ms())
        address = self.table[name][0]
        call.attempts.append(Attempt(self._born, address.partition(":")[0], queue_id))
        fields = {
            "a": "producers", "b": TOPIC, "c": "TBW102", "d": 4, "e": queue_id, "f": 0,
            "g": self._born, "h": 0, "i": f"UNIQ_KEY\x01{call.key}\x02", "j": 0, "k": "false",
            "m": "false",
        }  # fmt: skip
        return await self.ask(address, RequestCode.SEND_MESSAGE_V2, fields, left, call.body)


class Consumer(Client):
    """Reads all queues, and commits now and then. `read` by queue: the records that it got."""

    def __init__(self, world: "World", host: str) -> None:
        super().__init__(world, host)
        self.read: dict[int, list[Record]] = {queue: [] for queue in range(QUEUES)}
        self._which = dict.fromkeys(range(QUEUES), 0)
        self.loop.begin(self.look_again())
        for queue in range(QUEUES):
            self.loop.begin(self._go_on(queue))
        self.loop.begin(self._commit_often())

    async def _commit_often(self) -> None:
        """At one node, and ask another one; they are equal where nothing goes wrong."""
        offset = 0
        while True:
            await asyncio.sleep(self.chance.uniform(0.3, 2.0))
            offset = max(offset, len(self.read[0]))
            fields = {"consumerGroup": "readers", "topic": TOPIC, "queueId": 0}
            quiet = not self.world.sending
            try:
                one = await self.ask(
                    self.chance.choice(self.world.doors),
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    {**fields, "commitOffset": offset},
                    SEND_S,
                )
                other = await self.ask(
                    self.chance.choice(self.world.doors),
                    RequestCode.QUERY_CONSUMER_OFFSET,
                    fields,
                    SEND_S,
                )
            except (OSError, TimeoutError):
                continue
            if quiet and (one.code, other.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS):
                self.world.checks.offset_read(offset, int(other.fields["offset"]))

    def _address(self, number: int) -> str:
        """As findBrokerAddressInSubscribe."""
        table = self.table["b"]
        found = table.get(number)
        if found is None and number:
            found = table.get(number + 1)
        return found or table[min(table)]

    async def _go_on(self, queue: int) -> None:
        while True:
            if not self.table:
                await asyncio.sleep(0.1)
                continue
            try:
                answer = await self._pull(queue)
            except (OSError, TimeoutError) as problem:
                self.world.checks.pull_failed(self._address(self._which[queue]), queue, problem)
                await asyncio.sleep(PULL_AGAIN_S)
                continue
            if answer.code == ResponseCode.SUCCESS:
                self._take(queue, answer)
            elif answer.code not in (
                ResponseCode.PULL_NOT_FOUND,
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                ResponseCode.PULL_OFFSET_MOVED,
            ):
                await asyncio.sleep(PULL_AGAIN_S)
                continue
            elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
                self.world.checks.moved(self, queue, answer)
                await asyncio.sleep(0.5)
            self._which[queue] = int(answer.fields["suggestWhichBrokerId"])

    async def _pull(self, queue: int) -> Command:
        fields = {
            "consumerGroup": "readers", "topic": TOPIC, "queueId": queue,
            "queueOffset": len(self.read[queue]), "maxMsgNums": 32, "sysFlag": 2 | 4,
            "commitOffset": 0, "suspendTimeoutMillis": int(PARKED_S * 1000), "subscription": "*",
            "subVersion": 1, "expressionType": "TAG",
        }  # fmt: skip
        return await self.ask(
            self._address(self._which[queue]), RequestCode.PULL_MESSAGE, fields, PULL_S
        )

    def _take(self, queue: int, answer: Command) -> None:
        at, body, held = 0, answer.body, self.read[queue]
        while at < len(body):
            record = decode_record(body, at)
            at += record.size
            if record.queue_offset == len(held):
                held.append(record)
            elif record.queue_offset > len(held):
                self.world.fail(f"queue {queue}: {record.queue_offset} follows {len(held) - 1}")
        self.world.seen["read"] += 1

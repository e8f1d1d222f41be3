"""Real clients of a world, each a process with a loop of its own.

Producer   the real Sender and Chain over the real Connection; the world hears what callers hear
Reader     the real AsyncConsumer: a member of a group, or a reader of all queues for itself
"""

from array import array
from typing import TYPE_CHECKING, Any, Protocol

from fakes.batches import Put as Message
from fakes.clock import FakeClock
from sim.ha_nodes import NODES
from sim.served_store import QUEUES, TOPIC, Queue
from sim.world_loop import WorldLoop
from tandemlog.cluster.connection import Connection
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.reading.positions import Start
from tandemlog.errors import TandemlogError
from tandemlog.produce.accumulator import Accumulator
from tandemlog.produce.chain import Numbers
from tandemlog.produce.put_batch import CallbackSink, NullSink, PutBatch, Sink, durability_of
from tandemlog.produce.sender import RequestOptions, Sender

if TYPE_CHECKING:
    import asyncio

ENDPOINTS = ",".join(f"{name}:1" for name in NODES)
DELIVERY_S = 60.0
SESSION_S = 10.0
OPTIONS = FollowOptions(
    wait_ms=3_000,
    auto_commit_ms=1_000,
    refresh_ms=10_000,
    patience_ms=4_000,
    session_timeout_ms=round(SESSION_S * 1000),
    rebalance_timeout_ms=15_000,
)


class Told(Protocol):
    """What a world hears from its clients."""

    def told_stored(self, body: bytes) -> None: ...

    def told_failed(self, body: bytes, error: TandemlogError) -> None: ...

    def assigned(self, reader: "Reader", queues: list[Queue]) -> None: ...

    def lost_queues(self, reader: "Reader", queues: list[Queue]) -> None: ...

    def delivered(self, reader: "Reader", queue: Queue, queue_offset: int, body: bytes) -> None: ...

    def failed(self, reader: "Reader", error: Exception) -> None: ...


class Client:
    """See the module."""

    def __init__(self, name: str, clock: FakeClock) -> None:
        self.name = name
        self.clock = clock
        self.loop = WorldLoop(clock)
        self.gone = False

    def kill(self) -> None:
        """What it would tell its caller at its end, nobody hears."""
        self.gone = True
        self.loop.abandon()


def put_batch(body: bytes, queue_id: int, sink: Sink, deadline: float) -> PutBatch:
    """A request of one message."""
    record = Message(TOPIC, queue_id, body, b"").record()
    return PutBatch(
        first=record,
        rest=b"",
        sizes=array("I", [len(record)]),
        queue_indexes=array("H", [0]),
        topics=[TOPIC],
        queue_topics=[0],
        queue_ids=[queue_id],
        durability=durability_of(True),
        sink=sink,
        deadline=deadline,
    )


class NoFutures(NullSink):
    """Nothing is added one by one."""

    def add(self, index: int) -> Any:
        raise AssertionError("requests are whole here")


class Producer(Client):
    """See the module."""

    sender: Sender

    def __init__(self, name: str, clock: FakeClock, world: Told) -> None:
        super().__init__(name, clock)
        self._world = world
        self.given = 0
        self.answered = 0
        self.accumulator: Accumulator[Any] = Accumulator(
            batch_bytes=1 << 20,
            max_bytes=1 << 20,
            delivery_seconds=DELIVERY_S,
            new_group=NoFutures,
            wake=self._wake,
            clock=clock.monotonic,
        )
        self.loop.begin(self._open())
        self.loop.run_ready()

    def _wake(self) -> None:
        self.loop.call_soon(self.sender.send_due)

    async def _open(self) -> None:
        options = RequestOptions(
            batch_bytes=self.accumulator.batch_bytes,
            answer_seconds=10.0,
            delivery_seconds=DELIVERY_S,
            max_in_flight_requests=4,
        )
        self.sender = Sender(
            Connection(ENDPOINTS),
            self.accumulator,
            Numbers(self.name),
            options,
            named=False,
            refused=lambda batch, error: None,
        )

    @property
    def waiting(self) -> int:
        return self.given - self.answered

    def send(self, body: bytes, queue_id: int) -> None:
        def acknowledged(answer: object) -> None:
            self.answered += 1
            self._world.told_stored(body)

        def failed(error: TandemlogError) -> None:
            self.answered += 1
            if not self.gone:
                self._world.told_failed(body, error)

        self.given += 1
        deadline = self.clock.monotonic() + DELIVERY_S
        sink = CallbackSink(acknowledged, failed)
        self.accumulator.submit(put_batch(body, queue_id, sink, deadline))


class Reader(Client):
    """See the module. `group` None: it reads alone, and commits nothing."""

    def __init__(
        self, name: str, clock: FakeClock, world: Told, group: str | None, start: Start
    ) -> None:
        super().__init__(name, clock)
        self._world = world
        self.group = group
        self.start = start
        self.consumer: AsyncConsumer | None = None
        self.reading: asyncio.Task[None] = self.loop.begin(self._read())
        self.loop.run_ready()

    def kill(self) -> None:
        super().kill()
        if self.consumer is not None:
            self.consumer._followers.clear()  # it would say that it was not closed

    async def _read(self) -> None:
        world = self._world
        # a node that answers first after the retry time may find no patience left here
        options = ConnectionOptions(connect_timeout_ms=10**9, retry_timeout_ms=10**9)
        consumer = self.consumer = AsyncConsumer(
            ENDPOINTS, group=self.group, options=OPTIONS, connection=options, read_from="any"
        )
        callbacks: Any = {}
        if self.group is not None:
            callbacks = {
                "on_assigned": lambda _, queues: world.assigned(self, queues),
                "on_lost": lambda _, queues: world.lost_queues(self, queues),
            }
        try:
            stream = await consumer.follow(TOPIC, start=self.start, **callbacks)
            if self.group is None:
                world.assigned(self, [(TOPIC, number) for number in range(QUEUES)])
            async for message in stream:
                queue = message.topic, message.queue_id
                world.delivered(self, queue, message.queue_offset, bytes(message.body))
        except TandemlogError as error:
            world.failed(self, error)

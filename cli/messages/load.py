"""The load of `bench`: producers that keep a rate, consumers that measure how long messages take.

    due ──▶ send ──▶ acknowledged           put: from when a message was due to its acknowledgement
     └──────────────────────▶ in hand       get: from the same moment to the consumer's hand

With a rate, a message counts from when it was due, not from when the client came to send it: a node
that stands still for a second shows in all messages of that second. Without one, from the call. The
body begins with the run's number and that moment, so a consumer knows the messages of this run.
Producers and consumers share one process, and so one core: its clock measures both ends.
"""

import asyncio
import secrets
import struct
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandemlog.consume.received.received_batch import ReceivedBatch
from tandemlog.consume.stream import AsyncStream
from tandemlog.errors import TandemlogError
from tandemlog.message import Message, SendResult
from tandemlog.produce.producer import AsyncProducer

HEAD = struct.Struct("<qq")
"""The run, and the moment in ns of the monotonic clock."""
PERCENTILES = {"p50_ms": 50.0, "p99_ms": 99.0, "p99_9_ms": 99.9, "max_ms": 100.0}
LONGEST_SLEEP_S = 0.05
LATE_S = 10.0
"""How long consumers wait for what was acknowledged and did not come yet."""


@dataclass(frozen=True, slots=True)
class Load:
    """`count` messages, or for `duration_s`; `rate` messages a second in all, None: as fast as it
    goes. `size` bytes of each body."""

    topic: str
    size: int
    count: int | None
    duration_s: float | None
    rate: float | None
    producers: int
    consumers: int
    wait: bool = True
    run: int = field(default_factory=lambda: secrets.randbits(62))

    def ended(self, sent: int, seconds: float) -> bool:
        """Whether so much in this time is all."""
        if self.count is not None and sent >= self.count:
            return True
        return self.duration_s is not None and seconds >= self.duration_s


class Measured:
    """Messages, bytes of bodies, and the times of each in ns."""

    def __init__(self) -> None:
        self.messages = 0
        self.body_bytes = 0
        self.failed = 0
        self.problem: TandemlogError | None = None
        self._ns = array("q")
        self._first = 0.0
        self._last = 0.0

    def begin(self) -> None:
        self._first = self._last = time.monotonic()

    def add(self, messages: int, body_bytes: int, ns: Sequence[int] | NDArray[np.int64]) -> None:
        self.messages += messages
        self.body_bytes += body_bytes
        self._ns.extend(ns)
        self._last = time.monotonic()

    def fail(self, problem: TandemlogError) -> None:
        self.failed += 1
        self.problem = self.problem or problem

    @property
    def seconds(self) -> float:
        """From the beginning to the last message."""
        return max(self._last - self._first, 1e-9)

    def row(self) -> dict[str, Any]:
        """As `bench` shows it; percentiles of all times, None without times."""
        times = np.frombuffer(self._ns, np.int64) if self._ns else None
        return {
            "messages": self.messages,
            "failed": self.failed,
            "body_bytes": self.body_bytes,
            "seconds": round(self.seconds, 3),
            "messages_per_second": round(self.messages / self.seconds),
            "mb_per_second": round(self.body_bytes / self.seconds / 1e6, 3),
            **{
                name: None if times is None else round(float(np.percentile(times, each)) / 1e6, 3)
                for name, each in PERCENTILES.items()
            },
        }


class Producing:
    """Sends a load by several producers; `measured` has send to acknowledgement."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.measured = Measured()
        self.done = False
        self._sent = 0
        self._begun_ns = 0
        self._filler = b"x" * (load.size - HEAD.size)

    async def run(self, producers: Sequence[AsyncProducer]) -> None:
        """Until all is sent and answered."""
        self.measured.begin()
        self._begun_ns = time.monotonic_ns()
        await asyncio.gather(*map(self._send, producers))
        self.done = True

    def _seconds(self) -> float:
        return (time.monotonic_ns() - self._begun_ns) / 1e9

    async def _send(self, producer: AsyncProducer) -> None:
        load = self.load
        while not load.ended(self._sent, self._seconds()) and self.measured.problem is None:
            now = time.monotonic_ns()
            due = now
            if load.rate is not None:
                due = self._begun_ns + int(self._sent / load.rate * 1e9)
                if due > now:
                    await asyncio.sleep(min((due - now) / 1e9, LONGEST_SLEEP_S))
                    continue
            self._sent += 1
            body = HEAD.pack(load.run, due) + self._filler
            future = await producer.send(Message(load.topic, body), wait=load.wait)
            future.add_done_callback(partial(self._answered, due))
        await producer.flush()
        await asyncio.sleep(0)

    def _answered(self, due: int, future: "asyncio.Future[SendResult]") -> None:
        if future.cancelled():
            return
        problem = future.exception()
        if problem is None:
            self.measured.add(1, self.load.size, (time.monotonic_ns() - due,))
        elif isinstance(problem, TandemlogError):
            self.measured.fail(problem)
        else:
            raise problem


class Consuming:
    """Reads by several streams; `measured` has due to in hand, of this run's messages."""

    def __init__(self, load: Load, producing: Producing | None) -> None:
        self._load = load
        self._producing = producing
        self.measured = Measured()

    async def run(self, streams: Sequence[AsyncStream]) -> None:
        """With producers, until all that was acknowledged is read; else to the ends, or as much as
        the load says."""
        self.measured.begin()
        began = time.monotonic()
        await asyncio.gather(*(self._read(stream, began) for stream in streams))

    async def _read(self, stream: AsyncStream, began: float) -> None:
        late_from = None
        while True:
            now = time.monotonic()
            if self._producing is None:
                if self._load.ended(self.measured.messages, now - began):
                    return
            elif self._producing.done:
                late_from = late_from or now
                everything = self.measured.messages >= self._producing.measured.messages
                if everything or now - late_from > LATE_S:
                    return
            try:
                batch = await stream.next_batch(timeout_ms=LONGEST_SLEEP_S * 1000)
            except TimeoutError:
                continue
            if batch is None:
                return
            self._count(batch)

    def _count(self, batch: ReceivedBatch) -> None:
        lengths = batch.headers.body_length
        if self._producing is None:
            self.measured.add(len(batch), int(lengths.sum()), ())
            return
        runs, moments = heads_of(batch)
        mine = runs == self._load.run
        count = int(np.count_nonzero(mine))
        self.measured.add(count, count * self._load.size, time.monotonic_ns() - moments[mine])


def heads_of(batch: ReceivedBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """i8[n] the run and i8[n] the moment in ns of each message that has room for them."""
    headers = batch.headers
    starts = headers.body_start[headers.body_length >= HEAD.size]
    data = np.frombuffer(batch.records, np.uint8)
    heads = data[starts[:, None] + np.arange(HEAD.size)].copy().view("<i8")
    return heads[:, 0], heads[:, 1]

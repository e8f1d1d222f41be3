"""The work of every client, and the arithmetic of the results: the same for all clients.

    Work       who sends what: a body, and a topic and a queue for each message, drawn at random
    Measured   the result of one client's run: messages, seconds, processor time, waiting times
    Comparison one row of the table: the medians of both sides, and their ratio

Standard library only: a peer's own environment has nothing else.
"""

import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

TOPICS = 64
QUEUES = 4
BODY_BYTES = 128
READ_BODY_BYTES = 1024
READ_TOPIC = "peers-read"
PACED_TOPIC = "peers-paced"
TICKS_PER_SECOND = 1000
"""How often a paced sender looks at its clock."""


def topics() -> list[str]:
    return [f"peers-{number:02d}" for number in range(TOPICS)]


def places(count: int, seed: int = 1) -> list[tuple[str, int]]:
    """A random topic and queue for each of `count` messages."""
    every = [(topic, queue) for topic in topics() for queue in range(QUEUES)]
    return random.Random(seed).choices(every, k=count)


@dataclass(frozen=True, slots=True)
class Measured:
    """`seconds` and `cpu_seconds` (all threads of the client) for `count` messages. `ack_ms` and
    `hand_ms`: how long sampled messages waited for the acknowledgement, and for a consumer."""

    count: int
    seconds: float
    cpu_seconds: float
    ack_ms: Sequence[float] = ()
    hand_ms: Sequence[float] = ()

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def cpu_us(self) -> float:
        """Of the client, for a message."""
        return 1e6 * self.cpu_seconds / self.count

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> "Measured":
        return Measured(**json.loads(line))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all do not exceed; raises ValueError for no
    values."""
    return _ranked(_sorted(values), percent)


def percentiles(values: Sequence[float], count: int) -> list[float]:
    """`count` of them, evenly up to the highest: the summary of very many values. Raises ValueError
    for no values."""
    ordered = _sorted(values)
    return [_ranked(ordered, 100 * number / count) for number in range(1, count + 1)]


def _sorted(values: Sequence[float]) -> Sequence[float]:
    if not values:
        raise ValueError("no values, so no percentile")
    return sorted(values)


def _ranked(ordered: Sequence[float], percent: float) -> float:
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row: our values and those of the peer, one for each round."""

    name: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def our_median(self) -> float:
        return statistics.median(self.ours)

    @property
    def their_median(self) -> float:
        return statistics.median(self.theirs)

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios: the two sides of a round ran one after the other, so
        other load of the machine affects both."""
        return statistics.median(
            ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)
        )


def cpu_seconds() -> float:
    """Processor time of this process so far, in user and system mode, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(count: int, work: Callable[[], object]) -> Measured:
    cpu, began = cpu_seconds(), time.perf_counter()
    work()
    return Measured(count, time.perf_counter() - began, cpu_seconds() - cpu)


def paced(
    rate: int,
    seconds: float,
    send: Callable[[bytes, bool], object],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Calls `send(body, sampled)` `rate` times a second, in small bursts; a body begins with the
    time at which it was due, so that a sender which falls behind does not hide it. One message of
    each burst is sampled. Returns how many were sent."""
    burst = rate // TICKS_PER_SECOND
    began = clock()
    ticks = int(seconds * TICKS_PER_SECOND)
    for tick in range(ticks):
        due = began + tick / TICKS_PER_SECOND
        left = due - clock()
        if left > 0:
            sleep(left)
        body = stamped(due)
        chosen = tick % burst
        for number in range(burst):
            send(body, number == chosen)
    return ticks * burst


def stamped(due: float, size: int = BODY_BYTES) -> bytes:
    """A body that says when it was due, in seconds of the machine's monotonic clock."""
    return f"{due:.6f} ".encode().ljust(size, b"x")


def waited_ms(body: bytes, now: float) -> float:
    return (now - float(body[: body.index(b" ")])) * 1000


def report(measured: Measured) -> None:
    """Prints the result of a client program for the program that started it."""
    sys.stdout.write(measured.to_json() + "\n")
    sys.stdout.flush()

"""The three that are compared, each with its own client, and what each is asked to do.

    Side.measure(work, topics)    one measurement: messages a second, waiting times, processor time
                                  (PACED: sends at an even rate, while a consumer waits)

Every work exists for each number of topics, whose queues were filled before. Kafka's client makes
batches by itself and has one kind of consumer: `batch` is `async` there, `push` and `pull` are
`read`, and each of these is measured once.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.seeds import servers
from benchmarks.seeds.programs import JavaProgram
from benchmarks.seeds.servers import Server

QUEUES: Final = 8
"""Of a topic: what a broker makes by itself."""
BATCH: Final = 32
"""Messages of a batch, and of a pull."""
PACED_S: Final = 3
PACED: Final = "paced"
OWN_CLIENT: Final = ("sync", "async", "batch", "push", "pull")
RAW: Final = ("send", "batch", "pull")
SAME_FOR_KAFKA: Final[Mapping[str, str]] = {"batch": "async", "push": "read", "pull": "read"}


@dataclass(frozen=True, slots=True)
class Size:
    """`seconds` of each measurement of sends, `filled` messages to read in each set of topics, and
    `pace` messages a second where waiting times are measured."""

    seconds: int
    filled: int
    pace: int = 2_000

    def of_queue(self, topics: int) -> int:
        """Messages to read in each queue of so many topics: full batches, and one at least."""
        return max(self.filled // (topics * QUEUES * BATCH), 1) * BATCH


@dataclass(frozen=True, slots=True)
class Measurement:
    """Messages a second; waiting times of a request, ms; µs of processor time of the server, for a
    message and for a request (0 where a client makes the requests)."""

    rate: float
    p50_ms: float
    p99_ms: float
    server_us: float
    request_us: float = 0.0


def _measured(server: Server, program: JavaProgram, words: Sequence[object]) -> Measurement:
    before = server.cpu_seconds
    answer = program.ask(*words)
    used = 1e6 * (server.cpu_seconds - before)
    requests = answer.get("requests")
    return Measurement(
        answer["messages"] / answer["seconds"],
        answer["p50_us"] / 1000,
        answer["p99_us"] / 1000,
        used / answer["messages"],
        used / requests if requests else 0.0,
    )


def prefix(topics: int, work: str = "") -> str:
    """Of the names of a set of so many topics: those of PACED have nothing else in them."""
    return f"{PACED if work == PACED else 'seeds'}{topics}"


class RemotingSide:
    """A node or a broker, RocketMQ's client, and raw frames; `raw` is shared by both."""

    def __init__(self, server: Server, client: JavaProgram, raw: JavaProgram, size: Size) -> None:
        self.name = server.name
        self._server, self._client, self._raw, self._size = server, client, raw, size
        self._groups = itertools.count()

    def make_topics(self, topics: int, work: str = "") -> None:
        servers.make_topics(self._server, prefix(topics, work), topics, QUEUES)

    def fill(self, topics: int) -> None:
        number = self._size.of_queue(topics)
        self._raw.ask("fill", self._server.port, prefix(topics), topics, QUEUES, number)

    def measure(self, work: str, topics: int) -> Measurement:
        words: list[object] = [work, prefix(topics, work), topics]
        if work == PACED:
            words += [QUEUES, self._size.pace, PACED_S, "seeds-paced"]
        elif work == "push":
            words += [QUEUES, self._size.of_queue(topics), self._group()]
        elif work == "pull":
            words += [QUEUES, self._size.of_queue(topics)]
        else:
            words.append(self._size.seconds)
        return _measured(self._server, self._client, words)

    def measure_raw(self, work: str, topics: int) -> Measurement:
        words: list[object] = [work, self._server.port, prefix(topics), topics, QUEUES]
        if work == "pull":
            words.append(self._size.of_queue(topics))
        return _measured(self._server, self._raw, [*words, self._size.seconds])

    def _group(self) -> str:
        """A new one: it begins with the first message."""
        return f"seeds-{next(self._groups)}"


class KafkaSide:
    """Kafka and its client."""

    def __init__(self, server: Server, client: JavaProgram, size: Size) -> None:
        self.name = server.name
        self._server, self._client, self._size = server, client, size

    def make_topics(self, topics: int, work: str = "") -> None:
        self._client.ask("topics", prefix(topics, work), topics, QUEUES)

    def fill(self, topics: int) -> None:
        self._client.ask("fill", prefix(topics), topics, QUEUES, self._size.of_queue(topics))

    def measure(self, work: str, topics: int) -> Measurement:
        words: list[object] = [work, prefix(topics, work), topics]
        if work == PACED:
            words += [QUEUES, self._size.pace, PACED_S]
        elif work == "read":
            words += [QUEUES, self._size.of_queue(topics)]
        else:
            words.append(self._size.seconds)
        return _measured(self._server, self._client, words)

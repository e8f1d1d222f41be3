"""Clients of RocketMQ that go on while brokers are killed and restarted: a producer and a consumer.

    with Load(name_server, tmp_path / "load", "Orders", queues=4, rate=2_000) as load:
        broker.kill()
        broker.restart()
        summary = load.stop()
    load.acknowledged()     what a broker promised to keep, by key

Each is a process of its own (java/Load.java, java/Consume.java) and writes down what happened as it
happens, so that what is known survives its own kill too.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from interop.jars import VERSION, java
from interop.rocketmq import BROKER_NAME
from interop.store_client import Stored, Talker, stored_of, whole_lines


class NameServerPort(Protocol):
    """A name server of this machine, or what leads to one."""

    @property
    def port(self) -> int:
        """Where clients ask it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of the messages of a load."""

    statuses: dict[str, int]
    """Messages by status (SEND_OK, FLUSH_SLAVE_TIMEOUT, …) or exception and its code."""
    sending: int
    """Threads that have not ended."""
    p50_ms: float
    """Of the sends with SEND_OK, a batch being one."""
    p99_ms: float
    max_ms: float

    @property
    def ok(self) -> int:
        return self.statuses.get("SEND_OK", 0)

    @property
    def failed(self) -> int:
        """Without a SEND_OK: the broker may have some of them."""
        return sum(self.statuses.values()) - self.ok


class Acknowledged(NamedTuple):
    """One SEND_OK."""

    stored: Stored
    latency_ms: float
    time_ms: int
    """When it came, of the epoch."""


class Load(Talker):
    """Threads that send to all queues of a topic from the start on.

    Keys are `prefix-thread-number`, and no key is sent twice. With `queues` 0 the client chooses
    the queue by the route that it has, and `batch` is 1. With `rate` (messages a second) a
    thread waits for its turn, without it sends as fast as it can; `batch` puts so many messages
    into a send, which is how to fill a store quickly. With `messages` it ends after so many, or a
    few more where they are no whole number of batches for each thread; then a send waits 30 s for
    its answer, so that a busy machine fails none, else 2 s. What `rate` a load reaches depends on
    its threads.
    """

    def __init__(
        self,
        name_server: NameServerPort,
        home: Path,
        topic: str,
        *,
        queues: int,
        threads: int = 4,
        body_bytes: int = 200,
        batch: int = 1,
        rate: float = 0,
        prefix: str = "load",
        messages: int = 0,
        timeout_ms: int = 0,
        version: str = VERSION,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._file = home / f"{prefix}.acknowledged"
        order = {
            "topic": topic,
            "queues": queues,
            "threads": threads,
            "bytes": body_bytes,
            "batch": batch,
            "rate": rate,
            "prefix": prefix,
            "messages": -(-messages // threads),
            "timeout_ms": timeout_ms or (30_000 if messages else 2_000),
            "file": str(self._file),
        }
        super().__init__(
            java(
                "Load",
                f"127.0.0.1:{name_server.port}",
                BROKER_NAME,
                json.dumps(order),
                home=home,
                version=version,
            ),
            home,
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def summary(self) -> Summary:
        """So far."""
        return Summary(**self._try("stats"))

    def wait_for(self, messages: int, timeout_s: float = 60) -> Summary:
        """Until so many more have a SEND_OK than now."""
        wanted = self.summary().ok + messages
        return self._wait(lambda now: now.ok >= wanted, f"{wanted} SEND_OK", timeout_s)

    def wait_for_end(self, timeout_s: float = 120) -> Summary:
        """Until a load with a number of messages has sent them."""
        return self._wait(lambda now: not now.sending, "the end", timeout_s)

    def stop(self) -> Summary:
        """Wait for the answers to what is being sent, and end."""
        return Summary(**self.finish())

    def acknowledged(self) -> dict[str, Stored]:
        """What has a SEND_OK, by key: to be compared with `StoreClient.records`. While it sends,
        up to 0.1 s old."""
        return dict(map(stored_of, whole_lines(self._file)))

    def acknowledgements(self) -> dict[str, Acknowledged]:
        """The same with times, in the order in which they came."""
        found = {}
        for line in whole_lines(self._file):
            key, stored = stored_of(line)
            latency_ms, time_ms = line.split("\t")[-2:]
            found[key] = Acknowledged(stored, float(latency_ms), int(time_ms))
        return found

    def _wait(self, true: Callable[[Summary], bool], what: str, timeout_s: float) -> Summary:
        deadline = time.monotonic() + timeout_s
        while not true(now := self.summary()):
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout_s} s for {what}: {now}")
            time.sleep(0.05)
        return now


class Handled(NamedTuple):
    """A message that a consumer handled."""

    key: str
    queue_id: int
    queue_offset: int


class Consumer(Talker):
    """A member of a consumer group that reads a topic from its first message, or from where the
    group is, and commits twice a second.

    A consumer on the same folder goes on in the same file, so that `handled` is of both. A client
    of 4.9 does not notice that a broker closed its connection, and then pulls nothing for 30 s; one
    of 5.5 gets on with brokers of both versions.
    """

    def __init__(
        self,
        name_server: NameServerPort,
        home: Path,
        topic: str,
        group: str,
        *,
        name: str = "consumer",
        threads: int = 4,
        commit_ms: int = 500,
        version: str = VERSION,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._file = home / f"{name}.handled"
        order = {
            "topic": topic,
            "group": group,
            "name": name,
            "threads": threads,
            "commit_ms": commit_ms,
            "file": str(self._file),
        }
        super().__init__(
            java(
                "Consume",
                f"127.0.0.1:{name_server.port}",
                json.dumps(order),
                home=home,
                memory="256m",
                version=version,
            ),
            home,
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def count(self) -> int:
        """How many messages this process handled, those that came again too."""
        return int(self._try("stats")["handled"])

    def handled(self) -> list[Handled]:
        """Each message that was handled, as often as it was, in that order."""
        rows = (line.split("\t") for line in whole_lines(self._file))
        return [Handled(key, int(queue_id), int(offset)) for key, queue_id, offset in rows]

    def stop(self) -> int:
        """End it in order: what it handled is committed to the broker. How many it handled."""
        return int(self.finish()["handled"])

"""A producer and a push consumer of one of RocketMQ's clients, and what they saw as nodes failed.

Each is a program with the client's default settings. It sends a message every 5 ms, whose key and
body are its number, and writes a line for what happens:

    acknowledged MS KEY        MS: milliseconds since 1970
    delivered MS KEY
    failed MS WHAT
    stopped MS                 sending, after a line of input; it goes on consuming

It ends with its input. Other lines are the client's own, and of no interest.

    VERSION     Java, of a version of RocketMQ: java/Failover.java
    pop         the same, 5.5.0, whose consumer pops
    go          go/failover.go
    python      messaging/python_program.py: 5.x, which redelivers
    node        messaging/node_program.js: 5.x, and knows one node at first, not all
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from helpers.running import wait_until
from interop.jars import java
from interop.messaging_clients import node_program, piped, python_program
from interop.other_clients import go_program

if TYPE_CHECKING:
    from subprocess import Popen

POP, POP_VERSION = "pop", "5.5.0"
SETTLE_S = 180.0
"""A client that lost its broker asks for another route within 30 s; a busy machine adds to it."""


class Addresses(NamedTuple):
    """Of the nodes, separated by semicolons."""

    name_servers: str
    endpoints: str
    """Of the 5.x API."""


class Names(NamedTuple):
    """Each client has its own."""

    topic: str
    group: str


def names_of(client: str) -> Names:
    return Names(*(f"{what}-{client.replace('.', '-')}" for what in ("orders", "readers")))


def program(client: str, nodes: Addresses, home: Path) -> "Popen[str]":
    """See the module."""
    what = names_of(client)
    if client == "go":
        return piped([str(go_program()), "failover", nodes.name_servers, *what], home)
    if client == "python":
        return python_program(home, nodes.endpoints, "failover", *what)
    if client == "node":
        return node_program(home, nodes.endpoints.split(";")[0], "failover", *what)
    how, version = ([POP], POP_VERSION) if client == POP else ([], client)
    command = java("Failover", nodes.name_servers, *what, *how, home=home, version=version)
    return piped(command, home)


class Gap:
    """The longest time between two events since a mark, and from the last one until now."""

    def __init__(self) -> None:
        self._last_ms = 0
        self._longest_ms = 0

    def event(self, at_ms: int) -> None:
        if self._last_ms:
            self._longest_ms = max(self._longest_ms, at_ms - self._last_ms)
        self._last_ms = at_ms

    def mark(self) -> None:
        self._longest_ms = 0

    def longest_ms(self, now_ms: int) -> int:
        return max(self._longest_ms, now_ms - self._last_ms)


class Seen(NamedTuple):
    """What became of the messages so far; gaps since the mark."""

    acknowledged: frozenset[str]
    delivered: Counter[str]
    failed: Counter[str]
    """Sends, by what the client said."""
    acknowledgement_gap_ms: int
    delivery_gap_ms: int

    @property
    def missing(self) -> list[str]:
        return [key for key in self.acknowledged if key not in self.delivered]

    @property
    def repeated(self) -> int:
        """Messages that were delivered more than once."""
        return sum(times > 1 for times in self.delivered.values())


class Clients:
    """`with` it; the program is killed at the end."""

    def __init__(self, running: "Popen[str]", topic: str) -> None:
        self.topic = topic
        self._program = running
        self._lock = threading.Lock()
        self._acknowledged: set[str] = set()
        self._delivered = Counter[str]()
        self._failed = Counter[str]()
        self._acknowledgements, self._deliveries = Gap(), Gap()
        self._stopped = False
        self._reader = threading.Thread(target=self._read, name="failover-clients")

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._reader.join()
        self._program.communicate()

    def mark(self) -> Seen:
        """Measure gaps from now on."""
        with self._lock:
            self._acknowledgements.mark()
            self._deliveries.mark()
        return self.seen()

    def seen(self) -> Seen:
        now_ms = int(1000 * time.time())
        with self._lock:
            return Seen(
                frozenset(self._acknowledged),
                self._delivered.copy(),
                self._failed.copy(),
                self._acknowledgements.longest_ms(now_ms),
                self._deliveries.longest_ms(now_ms),
            )

    def stop_sending(self) -> None:
        assert self._program.stdin is not None
        self._program.stdin.write("stop\n")
        self._program.stdin.flush()
        self._wait("the last answer to a send", lambda: self._stopped)

    def wait_for_more(self, messages: int) -> None:
        """Acknowledged, and delivered to the consumer."""
        acknowledged, delivered = len(self._acknowledged), len(self._delivered)
        self._wait(
            f"{messages} more messages",
            lambda: (
                len(self._acknowledged) >= acknowledged + messages
                and len(self._delivered) >= delivered + messages
            ),
        )

    def wait_for_all(self) -> Seen:
        """Until all that was acknowledged is delivered."""
        self._wait("what was acknowledged", lambda: not self.seen().missing)
        return self.seen()

    def _wait(self, what: str, true: Callable[[], bool]) -> None:
        def there() -> bool:
            assert self._program.poll() is None, "the client's program has ended"
            return true()

        wait_until(lambda: f"{what}, now {self._said()}", there, SETTLE_S)

    def _said(self) -> str:
        now = self.seen()
        return (
            f"{len(now.acknowledged)} acknowledged, {len(now.delivered)} delivered, "
            f"missing {now.missing[:10]}, failed {dict(now.failed)}"
        )

    def _read(self) -> None:
        assert self._program.stdout is not None
        for line in self._program.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            at_ms, _, what = rest.partition(" ")
            with self._lock:
                if word == "acknowledged":
                    self._acknowledged.add(what)
                    self._acknowledgements.event(int(at_ms))
                elif word == "delivered":
                    self._delivered[what] += 1
                    self._deliveries.event(int(at_ms))
                elif word == "failed":
                    self._failed[what] += 1
                elif word == "stopped":
                    self._stopped = True

"""RocketMQ's own client and decoder, as programs that answer in lines of JSON.

StoreClient     RocketMQ's client behind a line protocol (java/StoreClient.java)
served          a broker on a store, and a client that reads it
dump            what RocketMQ's own decoder reads from the files of a store
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from interop.jars import VERSION, java
from interop.rocketmq import BROKER_NAME, Broker, NameServer, StoreSizes


class Talker:
    """A program of interop/java: every call is one line there and one JSON object back."""

    def __init__(self, command: list[str], home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._log = (home / "client.log").open("ab")
        self._process = subprocess.Popen(
            command,
            cwd=home,  # some of RocketMQ's programs write files where they are
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self.close()

    def finish(self) -> dict[str, Any]:
        """Close its input; what it says at its end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            return self._answer()
        finally:
            self.close()

    def close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _try(self, *words: object) -> dict[str, Any]:
        if self._process.stdin is None:
            raise RuntimeError("the client has no pipes")
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise RuntimeError("the client has no pipes")
        line = self._process.stdout.readline()
        if not line:
            said = Path(self._log.name).read_text(errors="replace")[-3000:]
            raise RuntimeError(f"RocketMQ's client ended:\n{said}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class StoreClient(Talker):
    """RocketMQ's own client; a JVM takes seconds to start, so one answers many questions."""

    def __init__(self, name_server: NameServer, home: Path, version: str = VERSION) -> None:
        super().__init__(
            java(
                "StoreClient",
                f"127.0.0.1:{name_server.port}",
                BROKER_NAME,
                home=home,
                memory="256m",
                version=version,
            ),
            home,
        )
        self._home = home

    def call(self, *words: object) -> dict[str, Any]:
        """Send one command; raises RuntimeError where RocketMQ's client answered with an error."""
        answer = self._try(*words)
        if "error" in answer:
            raise RuntimeError(f"{words}: {answer['error']}")
        return answer

    def wait_for(
        self, topic: str, queue_id: int, timeout_s: float = 120, broker: Broker | None = None
    ) -> None:
        """An open port is not a registered broker: poll until a known queue answers. `broker`, if
        given, is the one that is waited for: it may end at its start (see `check_alive`)."""
        deadline = time.monotonic() + timeout_s
        answer: dict[str, Any] = {}
        while time.monotonic() < deadline:
            if broker is not None:
                broker.check_alive()
            answer = self._try("range", topic, queue_id)
            if "error" not in answer:
                return
            time.sleep(0.3)
        raise RuntimeError(f"{topic}/{queue_id} is not served: {answer}")

    def create_topic(self, topic: str, queues: int) -> None:
        """On the broker that is registered as the master, for clients from now on."""
        self.call("create_topic", topic, queues)
        for queue_id in range(queues):
            self.wait_for(topic, queue_id)

    def delete_topic(self, topic: str) -> None:
        """On the master, with its queues' files; its records stay in the log."""
        self.call("delete_topic", topic)

    def set_broker_config(self, key: str, value: object, broker: Broker | None = None) -> None:
        """Change a setting of the master, or of `broker`, while it runs; it writes that into its
        configuration file."""
        self.call("set_broker_config", key, value, *_address(broker))

    def consumer_offsets(
        self, group: str, topic: str, broker: Broker | None = None
    ) -> dict[int, int]:
        """The next offset of the group in each queue, as the master or `broker` has it; 0 where it
        has none."""
        found = self.call("consumer_offsets", group, topic, *_address(broker))["offsets"]
        return {int(queue_id): offset for queue_id, offset in found.items()}

    def records(self, topic: str, queues: int) -> "dict[str, Stored]":
        """Every message of a topic that the master serves now, by its key. Raises ValueError for
        two with one key."""
        found: dict[str, Stored] = {}
        for queue_id in range(queues):
            file = self._home / f"{topic}-{queue_id}.records"
            self.call("records", topic, queue_id, file)
            for key, stored in map(stored_of, whole_lines(file)):
                if key in found:
                    raise ValueError(f"{key} is stored as {found[key]} and as {stored}")
                found[key] = stored
        return found


class Stored(NamedTuple):
    """Where a message is, and what it is."""

    topic: str
    queue_id: int
    queue_offset: int
    msg_id: str
    """The one with the address and the place in the log."""
    crc32: int
    """Of the body."""


def stored_of(line: str) -> tuple[str, Stored]:
    """The key and the place in a line of a file of StoreClient or Load."""
    topic, queue_id, offset, key, msg_id, crc32, *_ = line.split("\t")
    return key, Stored(topic, int(queue_id), int(offset), msg_id, int(crc32))


def whole_lines(file: Path) -> Iterator[str]:
    """The lines of a file that another process may write at, or was killed at."""
    with file.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield line[:-1]


def _address(broker: Broker | None) -> list[str]:
    return [] if broker is None else [broker.address]


def dump(
    store: Path, what: str, home: Path, slots: int, version: str = VERSION
) -> list[dict[str, Any]]:
    """What RocketMQ's own decoder reads: messages, queues or index of a store, a dict a row."""
    home.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        java("StoreDump", str(store), what, str(slots), home=home, version=version),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextlib.contextmanager
def served(
    store: Path,
    sizes: StoreSizes,
    home: Path,
    topic: str,
    queue_id: int = 0,
    *,
    version: str = VERSION,
    **settings: Any,
) -> Iterator[tuple[Broker, StoreClient]]:
    """A broker on `store` that answers for `topic`; stopped cleanly at the end unless killed."""
    name_server = NameServer(home / "namesrv", version)
    broker = Broker(home / "broker", version)
    client = None
    try:
        name_server.start()
        broker.start(name_server, store, sizes, **settings)
        client = StoreClient(name_server, home / "client", version)
        client.wait_for(topic, queue_id, broker=broker)
        yield broker, client
        broker.stop()
    finally:
        broker.kill()
        if client is not None:
            client.close()
        name_server.kill()

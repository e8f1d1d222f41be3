"""A real RocketMQ broker (released jars through Maven) and its own client, for the interop tests.

    jars()      copied once by Maven into tests/interop/target (ignored by git)
    NameServer, Broker   processes with the store paths and file sizes of a given store folder
    StoreClient          RocketMQ's client behind a line protocol (java/StoreClient.java)

The store sizes are part of a broker's settings: it refuses files of another length.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from running import free_ports

HERE = Path(__file__).resolve().parent
TARGET = HERE / "target"
# another released version to run against, e.g. to make stores of it
VERSION = os.environ.get("ROCKETMQ_VERSION", "5.5.0")
CLUSTER = "interop"
BROKER_NAME = "interop-a"
LOGGING = '<configuration><root level="ERROR"/></configuration>\n'
OPENS = [
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
]


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """What a broker must be told of the store it opens; bytes, slots and entries."""

    commit_log_file_size: int = 1 << 20
    queue_file_size: int = 8_000
    index_slots: int = 500
    index_entries: int = 2_000


def jars() -> str:
    """The class path of RocketMQ and of our Java programs, fetched and compiled where missing."""
    folder = TARGET / VERSION
    done = TARGET / f"{VERSION}.complete"
    if not done.exists():
        subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                f"-Drocketmq.version={VERSION}",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={folder}",
            ],
            cwd=HERE,
            check=True,
            timeout=600,
            stdin=subprocess.DEVNULL,
        )
        done.touch()
    sources = sorted((HERE / "java").glob("*.java"))
    classes = TARGET / f"{VERSION}-classes"
    compiled = [classes / f"{source.stem}.class" for source in sources]
    newest = max(source.stat().st_mtime for source in sources)
    if not all(each.exists() and each.stat().st_mtime >= newest for each in compiled):
        classes.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                "javac",
                "-nowarn",
                "-Xlint:none",
                "-cp",
                f"{folder}/*",
                "-d",
                str(classes),
                *map(str, sources),
            ],
            check=True,
            timeout=120,
        )
    for name in ("rmq.logback-test.xml", "logback-test.xml"):  # since 5.1, and before
        (classes / name).write_text(LOGGING)
    return f"{classes}:{folder}/*"


def _java(main: str, *arguments: str, home: Path, memory: str = "512m") -> list[str]:
    return [
        "java",
        f"-Xmx{memory}",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-Duser.home={home}",
        *OPENS,
        "-cp",
        jars(),
        main,
        *arguments,
    ]


@dataclass
class _Process:
    """A Java process with its own home, log and environment."""

    home: Path
    process: subprocess.Popen[Any] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        # 4.x and 5.0 do not start without these
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        for name in ("namesrv", "broker"):
            (self.home / "conf" / f"logback_{name}.xml").write_text(LOGGING)
        self.log = self.home / "out.log"

    def _spawn(self, command: list[str]) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "ROCKETMQ_HOME": str(self.home)},
            )

    def stop(self, timeout_s: float = 60) -> None:
        """End it cleanly (SIGTERM) and wait."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout_s)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(30)

    def _check_alive(self) -> None:
        if self.process is None or self.process.poll() is not None:
            raise RuntimeError(f"process ended early:\n{self.log.read_text()[-3000:]}")


class NameServer(_Process):
    """RocketMQ's name server on a free port of loopback."""

    def start(self) -> None:
        (self.port,) = free_ports(1)
        config = self.home / "namesrv.properties"
        config.write_text(f"listenPort={self.port}\nkvConfigPath={self.home}/kvConfig.json\n")
        self._spawn(
            _java(
                "org.apache.rocketmq.namesrv.NamesrvStartup",
                "-c",
                str(config),
                home=self.home,
                memory="256m",
            )
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            self._check_alive()
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 1),
            ):
                return
            time.sleep(0.1)
        raise RuntimeError("the name server does not listen")


class Broker(_Process):
    """A broker on the store folder `store`."""

    def start(
        self, name_server: NameServer, store: Path, sizes: StoreSizes, **settings: object
    ) -> None:
        port, ha_port = free_ports(2)
        properties: dict[str, object] = {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER_NAME,
            "brokerId": 0,
            "namesrvAddr": f"127.0.0.1:{name_server.port}",
            "listenPort": port,
            "haListenPort": ha_port,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "autoCreateTopicEnable": "false",
            "traceTopicEnable": "false",
            "timerWheelEnable": "false",
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "storePathConsumeQueue": store / "consumequeue",
            "storePathIndex": store / "index",
            "storeCheckpoint": store / "checkpoint",
            "abortFile": store / "abort",
            "mappedFileSizeCommitLog": sizes.commit_log_file_size,
            "mappedFileSizeConsumeQueue": sizes.queue_file_size,
            "maxHashSlotNum": sizes.index_slots,
            "maxIndexNum": sizes.index_entries,
            **settings,
        }
        config = self.home / "broker.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._spawn(
            _java("org.apache.rocketmq.broker.BrokerStartup", "-c", str(config), home=self.home)
        )


class StoreClient:
    """RocketMQ's own client; every call is one line there and one JSON object back."""

    def __init__(self, name_server: NameServer, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._log = (home / "client.log").open("ab")
        self._process = subprocess.Popen(
            _java(
                "StoreClient",
                f"127.0.0.1:{name_server.port}",
                BROKER_NAME,
                home=home,
                memory="256m",
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def call(self, *words: object) -> dict[str, Any]:
        """Send one command; raises RuntimeError where RocketMQ's client answered with an error."""
        answer = self._try(*words)
        if "error" in answer:
            raise RuntimeError(f"{words}: {answer['error']}")
        return answer

    def wait_for(self, topic: str, queue_id: int, timeout_s: float = 90) -> None:
        """An open port is not a registered broker: poll until a known queue answers."""
        deadline = time.monotonic() + timeout_s
        answer: dict[str, Any] = {}
        while time.monotonic() < deadline:
            answer = self._try("range", topic, queue_id)
            if "error" not in answer:
                return
            time.sleep(0.3)
        raise RuntimeError(f"{topic}/{queue_id} is not served: {answer}")

    def close(self) -> None:
        if self._process.stdin is not None:
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
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the client has no pipes")
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("RocketMQ's client ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def dump(store: Path, what: str, home: Path, slots: int) -> list[dict[str, Any]]:
    """What RocketMQ's own decoder reads: messages, queues or index of a store, a dict a row."""
    home.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        _java("StoreDump", str(store), what, str(slots), home=home),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def write_topics(
    store: Path, topics: dict[str, int], attributes: dict[str, dict[str, str]] | None = None
) -> None:
    """A topics.json with `topics` (name: number of queues) for a store that has none yet;
    `attributes` are those of 5.x topics."""
    table = {
        name: {
            "attributes": (attributes or {}).get(name, {}),
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for name, queues in topics.items()
    }
    (store / "config").mkdir(parents=True, exist_ok=True)
    (store / "config" / "topics.json").write_text(
        json.dumps({"dataVersion": {"counter": 1, "timestamp": 0}, "topicConfigTable": table})
    )


@contextlib.contextmanager
def served(
    store: Path, sizes: StoreSizes, home: Path, topic: str, queue_id: int = 0, **settings: object
) -> Iterator[tuple[Broker, StoreClient]]:
    """A broker on `store` that answers for `topic`; stopped cleanly at the end unless killed."""
    name_server = NameServer(home / "namesrv")
    broker = Broker(home / "broker")
    client = None
    try:
        name_server.start()
        broker.start(name_server, store, sizes, **settings)
        client = StoreClient(name_server, home / "client")
        client.wait_for(topic, queue_id)
        yield broker, client
        broker.stop()
    finally:
        broker.kill()
        if client is not None:
            client.close()
        name_server.kill()

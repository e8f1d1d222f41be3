"""A real RocketMQ broker (released jars through Maven) and its own client, for the interop tests.

    jars(version)        copied once by Maven into tests/interop/target (ignored by git)
    NameServer, Broker   processes with the store paths and file sizes of a given store folder
    StoreClient          RocketMQ's client behind a line protocol (java/StoreClient.java)

Each takes a `version`, so that one run has brokers of several. The store sizes are part of a
broker's settings: it refuses files of another length. A broker keeps its ports and its
configuration file over `restart()`, as one at home does:

    broker.start(name_server, store, StoreSizes())
    broker.wait_until_serving()
    broker.kill()
    broker.restart(flushDiskType="SYNC_FLUSH")

Load and consumers that outlive a broker are in interop/load.py.
"""

import contextlib
import fcntl
import functools
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from ha.errors import ProtocolError
from ha.rocketmq.wire.remoting import SUCCESS, Command, CommandReader, encode_command
from ha.rocketmq.wire.requests import GET_BROKER_CLUSTER_INFO, GET_BROKER_RUNTIME_INFO
from running import free_ports
from tandemlog.format.files.store_json import loads

HERE = Path(__file__).resolve().parent
TARGET = HERE / "target"
# what runs where a caller names no version; another one e.g. to make stores of it
VERSION = os.environ.get("ROCKETMQ_VERSION", "5.5.0")
CLUSTER = "interop"
BROKER_NAME = "interop-a"
UPDATE_BROKER_CONFIG = 25
"""RocketMQ's number of the remoting request."""
VIP_PORT_BELOW = 2
"""A broker listens here below its port too; clients and slaves ask for some tables there."""
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


@functools.cache
def jars(version: str = VERSION) -> str:
    """The class path of a RocketMQ and of our Java programs, fetched and compiled where missing.

    Processes that want the same version at the same time do it one after the other.
    """
    TARGET.mkdir(exist_ok=True)
    with (TARGET / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = _fetched(version)
        classes = _compiled(version, folder)
    return f"{classes}:{folder}/*"


def _fetched(version: str) -> Path:
    folder = TARGET / version
    done = TARGET / f"{version}.complete"
    if not done.exists():
        subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                f"-Drocketmq.version={version}",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={folder}",
            ],
            cwd=HERE,
            check=True,
            timeout=600,
            stdin=subprocess.DEVNULL,
        )
        done.touch()
    return folder


def _compiled(version: str, folder: Path) -> Path:
    sources = sorted((HERE / "java").glob("*.java"))
    classes = TARGET / f"{version}-classes"
    compiled = [classes / f"{source.stem}.class" for source in sources]
    newest = max(source.stat().st_mtime for source in sources)
    if not all(each.exists() and each.stat().st_mtime >= newest for each in compiled):
        classes.mkdir(parents=True, exist_ok=True)
        for name in ("rmq.logback-test.xml", "logback-test.xml"):  # since 5.1, and before
            (classes / name).write_text(LOGGING)
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
    return classes


def java(
    main: str, *arguments: str, home: Path, memory: str = "512m", version: str = VERSION
) -> list[str]:
    """The command that runs `main` of RocketMQ or of interop/java.

    RocketMQ looks for an address of this machine as it starts. If interfaces come and go meanwhile
    (containers, namespaces of other tests) it falls back on the machine's name, and ends with a
    NullPointerException if no host has that name; here one has.
    """
    home.mkdir(parents=True, exist_ok=True)
    hosts = home / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    return [
        "java",
        f"-Xmx{memory}",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-Duser.home={home}",
        f"-Djdk.net.hosts.file={hosts}",
        # or each server makes a certificate at its start, a second of a core
        "-Dtls.server.mode=disabled",
        *OPENS,
        "-cp",
        jars(version),
        main,
        *arguments,
    ]


@dataclass
class _Process:
    """A Java process with its own home, log and environment."""

    home: Path
    version: str = VERSION
    process: subprocess.Popen[Any] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        # 4.x and 5.0 do not start without these
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        for name in ("namesrv", "broker"):
            (self.home / "conf" / f"logback_{name}.xml").write_text(LOGGING)
        self.log = self.home / "out.log"

    def _spawn(self, main: str, config: Path, memory: str) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                java(main, "-c", str(config), home=self.home, memory=memory, version=self.version),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "ROCKETMQ_HOME": str(self.home)},
            )

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self, timeout_s: float = 60) -> None:
        """End it cleanly (SIGTERM) and wait."""
        if self.process is not None and self.runs:
            self.process.terminate()
            self.resume()
            self.process.wait(timeout_s)

    def kill(self) -> None:
        if self.process is not None and self.runs:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(30)

    def pause(self) -> None:
        """Stop it where it is (SIGSTOP): its connections stay open, and nobody answers."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def _check_alive(self) -> None:
        if not self.runs:
            raise RuntimeError(f"process ended early:\n{self.log.read_text()[-3000:]}")


@dataclass
class NameServer(_Process):
    """RocketMQ's name server on a port of loopback. It remembers nothing over a restart: brokers
    register again within 30 s."""

    port: int = 0

    def start(self, port: int | None = None) -> None:
        """On a free port if none is given."""
        self.port = port or free_ports(1)[0]
        config = self.home / "namesrv.properties"
        config.write_text(f"listenPort={self.port}\nkvConfigPath={self.home}/kvConfig.json\n")
        self._spawn("org.apache.rocketmq.namesrv.NamesrvStartup", config, "256m")
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

    def restart(self) -> None:
        """Stop it if it runs, and start it on its port."""
        self.stop()
        self.start(self.port)

    def brokers(self) -> dict[tuple[str, int], str]:
        """Who is registered now: (name, id) -> address."""
        info = cast("dict[str, Any]", loads(ask(self.port, GET_BROKER_CLUSTER_INFO)))
        return {
            (name, int(broker_id)): address
            for name, data in info["brokerAddrTable"].items()
            for broker_id, address in data["brokerAddrs"].items()
        }


@dataclass
class Broker(_Process):
    """A broker on a store folder. From `start` on it has the name server that it registers at, its
    ports, and the name and id that it registers."""

    name_server: NameServer = field(init=False)
    store: Path = field(init=False)
    port: int = 0
    ha_port: int = 0
    name: str = BROKER_NAME
    broker_id: int = 0

    def start(
        self,
        name_server: NameServer,
        store: Path,
        sizes: StoreSizes,
        *,
        port: int | None = None,
        ha_port: int | None = None,
        **settings: object,
    ) -> None:
        """With `settings` over ours (a slave: brokerId=1, brokerRole="SLAVE"). The ports are free
        ones unless given; the HA port is the next above, which 4.x does not let anybody choose."""
        port = port or int(str(settings.pop("listenPort", 0))) or _free_broker_port()
        ha_port = ha_port or int(str(settings.pop("haListenPort", 0))) or port + 1
        if self.version.startswith("4.") and ha_port != port + 1:
            raise ValueError(
                f"RocketMQ {self.version} on port {port} has its HA port at {port + 1}"
            )
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
        self.name_server, self.store, self.port, self.ha_port = name_server, store, port, ha_port
        self.name, self.broker_id = str(properties["brokerName"]), int(str(properties["brokerId"]))
        self._config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._start()

    def restart(self, **changes: object) -> None:
        """Stop it if it runs, and start it on its configuration file, with `changes` for good. The
        file also has what was set while it ran (`StoreClient.set_broker_config`)."""
        self.stop()
        with self._config.open("a") as config:
            config.write("\n" + "".join(f"{key}={value}\n" for key, value in changes.items()))
        self.name = str(changes.get("brokerName", self.name))
        self.broker_id = int(str(changes.get("brokerId", self.broker_id)))
        self._start()

    def wait_until_serving(self, timeout_s: float = 90) -> None:
        """Until the name server gives its address to clients, and it answers there. An open port
        is not enough."""
        deadline = time.monotonic() + timeout_s
        problem: object = "it is not registered"
        while time.monotonic() < deadline:
            self._check_alive()
            try:
                ask(self.port, GET_BROKER_RUNTIME_INFO)
                if self._is_registered():
                    return
                self._register()
            except (OSError, ProtocolError, RuntimeError) as error:
                problem = error
            time.sleep(0.2)
        raise RuntimeError(f"the broker does not serve after {timeout_s} s: {problem}")

    def _is_registered(self) -> bool:
        return self.name_server.brokers().get((self.name, self.broker_id)) == self.address

    def _register(self) -> None:
        """Have it register now. 5.x tries so before it is connected to the name server, and then
        again after 10 s; or when somebody sets its permissions."""
        before = self._config.read_text()
        permission = re.findall(r"^brokerPermission=(\d)", before, re.MULTILINE) or ["6"]
        ask(self.port, UPDATE_BROKER_CONFIG, f"brokerPermission={permission[-1]}".encode())
        self._config.write_text(before)  # it wrote down every setting there is

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def _config(self) -> Path:
        return self.home / "broker.properties"

    def _start(self) -> None:
        self._spawn("org.apache.rocketmq.broker.BrokerStartup", self._config, "512m")


def _free_broker_port() -> int:
    """One with its neighbours: the HA port above, and the VIP channel below."""
    for _ in range(50):
        (port,) = free_ports(1)
        with contextlib.suppress(OSError):
            for each in (port + 1, port - VIP_PORT_BELOW):
                with socket.socket() as probe:
                    probe.bind(("", each))
            return port
    raise AssertionError("no free port with free neighbours")


def ask(port: int, code: int, body: bytes = b"") -> bytes:
    """The body that a broker or name server of this machine responds with to one remoting request.
    Raises RuntimeError if it says no, OSError if it does not answer."""
    commands = CommandReader()
    with socket.create_connection(("127.0.0.1", port), 2) as connection:
        connection.sendall(encode_command(Command(code, body=body)))
        while data := connection.recv(64 << 10):
            for response in commands.feed(data):
                if response.code != SUCCESS:
                    raise RuntimeError(f"{port} refused request {code}: {response.remark}")
                return response.body
    raise ConnectionError(f"{port} closed the connection")


class Talker:
    """A program of interop/java: every call is one line there and one JSON object back."""

    def __init__(self, command: list[str], home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._log = (home / "client.log").open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
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
            raise RuntimeError(f"RocketMQ's client ended, see {self._log.name}")
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

    def create_topic(self, topic: str, queues: int) -> None:
        """On the broker that is registered as the master, for clients from now on."""
        self.call("create_topic", topic, queues)
        for queue_id in range(queues):
            self.wait_for(topic, queue_id, 30)

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
        client.wait_for(topic, queue_id)
        yield broker, client
        broker.stop()
    finally:
        broker.kill()
        if client is not None:
            client.close()
        name_server.kill()

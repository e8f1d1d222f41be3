"""A real RocketMQ broker (released jars through Maven) and its own client, for the interop tests.

    NameServer, Broker   processes with the store paths and file sizes of a given store folder

Each takes a `version`, so that one run has brokers of several. The store sizes are part of a
broker's settings: it refuses files of another length. A broker keeps its ports and its
configuration file over `restart()`, as one at home does:

    broker.start(name_server, store, StoreSizes())
    broker.wait_until_serving()
    broker.kill()
    broker.restart(flushDiskType="SYNC_FLUSH")

The jars are in interop/jars.py, RocketMQ's client in interop/store_client.py, load and consumers
that outlive a broker in interop/load.py.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from helpers.running import free_ports
from interop.jars import LOGGING, QUICK_START, VERSION, java
from tandemlog.format.files.store_json import loads
from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.rocketmq.wire.remoting import SUCCESS, Command, CommandReader, encode_command
from tandemlog_server.rocketmq.wire.requests import GET_BROKER_CLUSTER_INFO, GET_BROKER_RUNTIME_INFO

CLUSTER = "interop"
BROKER_NAME = "interop-a"
UPDATE_BROKER_CONFIG = 25
"""RocketMQ's number of the remoting request."""
VIP_PORT_BELOW = 2
"""A broker listens here below its port too; clients and slaves ask for some tables there."""
ANSWER_S = 30
"""A broker on a busy machine may stand still for seconds."""


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """What a broker must be told of the store it opens; bytes, slots and entries."""

    commit_log_file_size: int = 1 << 20
    queue_file_size: int = 8_000
    index_slots: int = 500
    index_entries: int = 2_000


@dataclass
class _Process:
    """A Java process with its own home, log and environment; `options` are those of the JVM, and
    `heap` the most memory for its objects ("2g"), where it is not what a test needs."""

    home: Path
    version: str = VERSION
    options: Sequence[str] = QUICK_START
    heap: str = ""
    process: subprocess.Popen[Any] | None = None
    log: Path = field(init=False)
    _command: list[str] = field(init=False)
    _log_start: int = field(init=False)

    def __post_init__(self) -> None:
        # 4.x and 5.0 do not start without these
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        for name in ("namesrv", "broker"):
            (self.home / "conf" / f"logback_{name}.xml").write_text(LOGGING)
        self.log = self.home / "out.log"

    def _spawn(self, main: str, config: Path, memory: str) -> None:
        self._command = java(
            main,
            "-c",
            str(config),
            home=self.home,
            memory=self.heap or memory,
            version=self.version,
            options=self.options,
        )
        self._run()

    def _run(self) -> None:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self._command,
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

    def check_alive(self) -> None:
        """One that found no address of this machine is started again (see `java`)."""
        if self.runs:
            return
        said = self.log.read_bytes()[self._log_start :].decode(errors="replace")
        if '"localHost" is null' not in said:
            raise RuntimeError(f"process ended early:\n{said[-3000:]}")
        self._run()


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
            self.check_alive()
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
            # or a broker on a busy machine refuses messages that waited 0.2 s for their turn
            "waitTimeMillsInSendQueue": 30_000,
            "osPageCacheBusyTimeOutMills": 30_000,
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
            self.check_alive()
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
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
        connection.sendall(encode_command(Command(code, body=body)))
        while data := connection.recv(64 << 10):
            for response in commands.feed(data):
                if response.code != SUCCESS:
                    raise RuntimeError(f"{port} refused request {code}: {response.remark}")
                return response.body
    raise ConnectionError(f"{port} closed the connection")


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

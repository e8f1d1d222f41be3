"""Nodes as real processes: started from a configuration, waited for, killed, paused, read from.

    with Running(folder, slaves=2, flush="sync") as cluster:
        cluster.master.kill()
        cluster.master.start()

Every wait has a deadline and says what it waited for; a node that ends early shows its log.
"""

import contextlib
import fcntl
import itertools
import os
import random
import signal
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from helpers import borrowed_disk, forked
from helpers.forked import ROOT, AnyProcess
from tandemlog.format.record.record import Record, decode_record
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, common_pb2

SMALL: dict[str, Any] = {
    "commit_log_file_size": 1 << 20,
    "queue_file_size": 20_000,
    "index_slots": 500,
    "index_entries": 2_000,
}


def _share_of_this_process() -> int:
    """Which part of the ports is ours while this process lives: the first whose lock it gets."""
    folder = Path(tempfile.gettempdir()) / f"tandemlog-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for share in range(SHARES):
        lock = os.open(folder / str(share), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return share
    raise AssertionError(f"{SHARES} processes run these tests already")


def _ports_of_this_process() -> Iterator[int]:
    """In random order, again and again, those below the ones that the system gives away by itself.

    A node that is down for a moment keeps its port so: no client of another test gets it, and each
    process of pytest has a share of its own. Every fourth, since a broker takes neighbours too.
    """
    first = FIRST_PORT + _share_of_this_process() * PORTS_OF_A_SHARE
    ports = list(range(first, first + PORTS_OF_A_SHARE - ROW, 4))
    random.Random().shuffle(ports)
    yield from itertools.cycle(ports)


# Up to 30,000: the system gives away ports from 32,768 on.
FIRST_PORT, SHARES, PORTS_OF_A_SHARE = 10_000, 16, 1_250
# What a local cluster takes beside its nodes' ports: coordinators from 50 above the first, HTTP
# ports from 100 above.
ROW, COORDINATORS, HTTP = 150, 50, 100

_ports = _ports_of_this_process()


def free_ports(count: int) -> list[int]:
    """Ports that are free now, and that no other process of these tests asks for."""
    found: list[int] = []
    for port in itertools.islice(_ports, 2_000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def first_of_free_row(count: int) -> int:
    """The gRPC port of a master for which `tandemlog up` finds `count` nodes' ports free: its
    slaves' follow it, and coordinators and HTTP servers have theirs above."""
    members = range(2 * 3)  # of etcd: a port for clients and one for the others
    for _ in range(50):
        (first,) = free_ports(1)
        nodes = range(first, first + count)
        wanted = [*nodes, *(first + COORDINATORS + each for each in members)]
        with contextlib.suppress(OSError):
            for each in (*wanted, *(number + HTTP for number in nodes)):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
            return first
    raise AssertionError("no row of free ports")


def wait_until(
    what: str | Callable[[], str], true: Callable[[], bool], timeout_s: float = 30
) -> None:
    """Poll until `true()`; raises AssertionError that names `what`, as it is by then."""
    began = time.monotonic()
    while not true():
        waited_s = time.monotonic() - began
        if waited_s > timeout_s:
            named = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {timeout_s} s for: {named}")
        time.sleep(min(max(0.02, waited_s / 20), 0.1))


def toml(values: dict[str, Any]) -> str:
    """A TOML text of plain values, lists of them, and one level of tables."""

    def literal(value: object) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(literal, value))}]"
        if isinstance(value, bool):
            return "true" if value else "false"
        return f'"{value}"' if isinstance(value, str | Path) else str(value)

    plain = [f"{key} = {literal(v)}" for key, v in values.items() if not isinstance(v, dict)]
    for section, content in values.items():
        if isinstance(content, dict):
            plain.append(f"\n[{section}]")
            plain += [f"{key} = {literal(v)}" for key, v in content.items()]
    return "\n".join(plain) + "\n"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server runs: its address there, and the command by which programs start there."""

    host: str = "127.0.0.1"
    wrapper: tuple[str, ...] = ()


LOOPBACK = Place()


def _environment() -> dict[str, str]:
    """Without the settings that whoever runs the tests may have made for nodes."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TANDEMLOG_")}
    return inherited | borrowed_disk.ENVIRONMENT


def _stopped(pid: int) -> bool:
    """Whether each thread of the process is stopped, or the process is gone."""
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            # the state follows the name in parentheses, which may hold any character
            if thread.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return False
    return True


class ServerProcess:
    """What the process of a server may suffer, once it was started."""

    process: AnyProcess | None
    program: Path
    log: Path

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL, also while it is paused, and wait until it is gone."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)

    def pause(self) -> None:
        """Stop it, and wait until none of its threads runs: a signal takes a moment to reach those
        on other processors, and a busy machine a long one."""
        self._signal(signal.SIGSTOP)
        assert self.process is not None
        wait_until(f"{self.log.stem} to stand still", partial(_stopped, self.process.pid))

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def tail(self, size: int = 4_000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None:
            raise AssertionError(f"{self.log} has no process yet: it was never started")
        self.process.send_signal(number)


@dataclass
class NodeProcess(ServerProcess):
    """One node; `settings` are those of its TOML file. `store` is where its store lies, `program`
    the checkout that it runs."""

    folder: Path
    settings: dict[str, Any]
    wrapper: tuple[str, ...] = ()
    process: AnyProcess | None = None
    program: Path = ROOT
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "node.log"

    @property
    def endpoint(self) -> str:
        return str(self.settings["listen"])

    @property
    def http(self) -> str:
        return f"http://{self.settings['http_listen']}"

    @property
    def store(self) -> Path:
        return Path(self.settings["store"]["directory"])

    @property
    def node_id(self) -> str:
        return str(self.settings["node_id"])

    def start(self, *, wait: bool = True, timeout_s: float = 60) -> "NodeProcess":
        """Start the process and wait until it answers."""
        config = self.folder / "node.toml"
        config.write_text(toml(self.settings))
        with self.log.open("ab") as out:
            command = [*self.wrapper, *forked.PROGRAM, "node", "--config", str(config)]
            self.process = forked.start(command, out, cwd=self.program, env=_environment())
        if wait:
            self.wait_ready(timeout_s)
        return self

    def wait_ready(self, timeout_s: float = 60) -> None:
        def ready() -> bool:
            if not self.alive:
                raise AssertionError(f"{self.node_id} ended early:\n{self.tail()}")
            return self.status() is not None

        wait_until(f"{self.node_id} to answer", ready, timeout_s)

    def status(self) -> common_pb2.NodeStatus | None:
        """What the node says of itself; None where it does not answer."""
        try:
            with grpc.insecure_channel(self.endpoint) as channel:
                answer = admin_pb2_grpc.AdminStub(channel).DescribeCluster(
                    admin_pb2.DescribeClusterRequest(), timeout=5
                )
        except grpc.RpcError:
            return None
        return next((each for each in answer.nodes if each.node_id == self.node_id), None)

    def http_status(self, path: str) -> int:
        """The status code that the node's HTTP port answers for `path`; 0 without an answer."""
        try:
            with urllib.request.urlopen(f"{self.http}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def stop(self, timeout_s: float = 60) -> int:
        """End it cleanly; the answer is its exit code."""
        if self.process is None:
            raise AssertionError(f"{self.node_id} was never started")
        self.process.terminate()
        return self.process.wait(timeout_s)

    def read_queue(self, topic: str, queue_id: int, start: int = 0) -> list[Record]:
        """Every message of a queue that this node itself serves, from `start` on."""
        found: list[Record] = []
        options = [("grpc.max_receive_message_length", 64 << 20)]
        with grpc.insecure_channel(self.endpoint, options=options) as channel:
            stub = broker_pb2_grpc.BrokerStub(channel)
            while True:
                position = broker_pb2.QueuePosition(
                    topic=topic, queue_id=queue_id, queue_offset=start
                )
                request = broker_pb2.PullRequest(positions=[position], max_bytes=8 << 20)
                answer = stub.Pull(request, timeout=60)
                if answer.HasField("error"):
                    raise AssertionError(f"{self.node_id}: {answer.error.message}")
                part = answer.queues[0]
                if part.status != broker_pb2.FOUND:
                    if part.next_offset > start and part.next_offset < part.max_offset:
                        start = part.next_offset
                        continue
                    return found
                at = 0
                for _ in range(part.count):
                    record = decode_record(part.records, at)
                    found.append(record)
                    at += record.size
                start = part.next_offset


class Running:
    """A master (n0) and its slaves on loopback, each with a store of its own below `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        slaves: int = 0,
        flush: str = "async",
        replication: str | None = None,
        min_in_sync: int = 1,
        store: dict[str, Any] | None = None,
        master_store: Path | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        ports = free_ports(2 * (slaves + 1))
        mode = replication or ("sync" if min_in_sync > 1 else "async")
        self.nodes: list[NodeProcess] = []
        for number in range(slaves + 1):
            home = folder / f"n{number}"
            directory = home / "store"
            if number == 0 and master_store is not None:
                directory = master_store
            settings: dict[str, Any] = {
                "cluster_id": "test",
                "node_id": f"n{number}",
                "role": "slave" if number else "master",
                "listen": f"127.0.0.1:{ports[2 * number]}",
                "http_listen": f"127.0.0.1:{ports[2 * number + 1]}",
                "store": {"directory": directory, "flush": flush, **SMALL, **(store or {})},
                "replication": {"mode": mode, "min_in_sync": min_in_sync},
            }
            if number:
                settings["master"] = self.nodes[0].endpoint
            for key, value in (extra or {}).items():
                if isinstance(value, dict):
                    settings.setdefault(key, {}).update(value)
                else:
                    settings[key] = value
            self.nodes.append(NodeProcess(home, settings))

    @property
    def master(self) -> NodeProcess:
        return self.nodes[0]

    @property
    def slaves(self) -> list[NodeProcess]:
        return self.nodes[1:]

    @property
    def endpoints(self) -> list[str]:
        return [node.endpoint for node in self.nodes]

    def start(self) -> "Running":
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.wait_ready()
        return self

    def wait_in_sync(self, timeout_s: float = 60) -> None:
        """Until every slave has, and dispatched, what the master has confirmed."""

        def settled() -> bool:
            states = [node.status() for node in self.nodes]
            if any(state is None for state in states):
                return False
            found = [state for state in states if state is not None]
            end = found[0].wrote_offset
            return all(each.confirm_offset == end and each.reput_offset == end for each in found)

        wait_until("every node to hold and dispatch the same", settled, timeout_s)

    def __enter__(self) -> "Running":
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                if node.alive:
                    node.resume()
            node.kill()

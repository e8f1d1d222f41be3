"""A local cluster: one master and its slaves, each a process of its own, in this process group.

    DIR/cluster.json          what the cluster is, so that the next `up` continues with it
    DIR/up.lock               held by the `up` that runs it
    DIR/n0/node.toml          configuration of a node, written at each start
    DIR/n0/node.log           what it says
    DIR/n0/store/             its store; n0's may lie elsewhere (--store)
    DIR/coordinator/          by which the nodes elect their master (local_coordinator.py)
    DIR/secure/               certificates and tokens, if it is secure (local_security.py)

Without a coordinator n0 is the master. The nodes ignore Ctrl-C, which a terminal sends to the whole
group, and are stopped from here: the master first, so that its last puts still find their slaves,
then the slaves. A node also ends when this process does, however it ends.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

import tomlkit

from tandemlog.format.words import counted
from tandemlog.transport.security import Security
from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.node.settings.host_port import split_endpoint
from tandemlog_server.node.settings.listen_endpoints import usable
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import StoreLockedError
from tandemlog_server.storage.inspect.geometry import Geometry

from ..shared.exit_codes import FAULT
from ..shared.failures import CommandError
from .local_coordinator import EMBEDDED, NONE, LocalCoordinator, with_package_path
from .local_doors import DoorPorts, both_doors
from .local_security import OPERATOR, LocalSecurity

HTTP_PORT_DISTANCE = 100
DEFAULT_SLAVES = 2
# Three nodes on one disk, each with the next file allocated ahead: RocketMQ's 1 GiB would be 6.
DEFAULT_LOG_FILE_SIZE = 256 << 20
MAX_SLAVES = 16
RELOAD_MS = 1_000
PLAN = "cluster.json"
ELECTED = "elected"
LOCK = "up.lock"


class ClusterError(CommandError):
    """A cluster that cannot be started, or a node of it that ended. `exit_code` is the node's."""

    def __init__(self, message: str, exit_code: int = FAULT) -> None:
        super().__init__(message, exit_code)


@dataclass(frozen=True, slots=True)
class Sizes:
    """File sizes of every store of the cluster."""

    commit_log_file_size: int
    queue_file_size: int
    index_slots: int
    index_entries: int


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What DIR/cluster.json remembers."""

    cluster_id: str
    slaves: int
    store: str  # of the master; empty: DIR/n0/store
    sizes: Sizes
    flush: str = "async"
    replication: str = "sync"
    min_in_sync: int = 1
    coordinator: str = NONE
    secure: bool = False
    follow: str = ""  # rocketmq://…, whose log n0 follows
    rocketmq: bool = False  # whether each node has the ports of RocketMQ's clients


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asks for; None: as the cluster was, or the default."""

    slaves: int | None = None
    store: Path | None = None
    commit_log_file_size: int | None = None
    queue_file_size: int | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    flush: str | None = None
    replication: str | None = None
    min_in_sync: int | None = None
    coordinator: str | None = None
    secure: bool | None = None
    follow: str | None = None
    rocketmq: bool | None = None


@dataclass(slots=True)
class NodeProcess:
    """One node: where it is and, once started, its process."""

    node_id: str
    role: str
    endpoint: str
    http_endpoint: str
    config: Path
    log: Path
    rocketmq_endpoint: str = ""  # empty: none
    rocketmq_grpc_endpoint: str = ""
    process: subprocess.Popen[bytes] | None = None
    log_start: int = field(default=0)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self.process is None else self.process.poll()

    def last_words(self) -> str:
        """What the node said last in this run, for the message why it ended."""
        try:
            with self.log.open("rb") as file:
                file.seek(self.log_start)
                lines = file.read()[-4096:].decode(errors="replace").splitlines()
        except OSError:
            return ""
        words = [line.removeprefix("tandemlog: ") for line in lines if line.strip()]
        return words[-1] if words else ""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """No other process runs the cluster of `directory`, or writes its files, meanwhile. Raises
    StoreLockedError if one does."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLockedError(
                f"{directory}: another `tandemlog up` is running this cluster; stop it first"
            ) from None
        yield


def plan_cluster(directory: Path, wishes: Wishes) -> ClusterPlan:
    """The plan of DIR with what is wished now; raises ConfigError if the two exclude each other,
    and StoreLayoutError if the master's store does not have the sizes it is said to have.

    A store that exists tells its own file sizes, and the slaves get the same ones, so that the
    derived files of all nodes can be compared byte for byte.
    """
    last = _load(directory / PLAN)
    plan = _new_plan(directory, wishes) if last is None else _next_plan(directory, last, wishes)
    if plan.follow and plan.coordinator != NONE:
        raise ConfigError(
            f"{directory} elects its master, so none of its nodes can follow {plan.follow}: choose "
            "another --dir"
        )
    if plan.min_in_sync > plan.slaves + 1:
        raise ConfigError(
            f"min_in_sync {plan.min_in_sync} needs {counted(plan.min_in_sync - 1, 'slave')}, "
            f"not {plan.slaves}"
        )
    return plan


def _next_plan(directory: Path, last: ClusterPlan, wishes: Wishes) -> ClusterPlan:
    store = Path(last.store) if last.store else directory / "n0" / "store"
    if wishes.store is not None and wishes.store.resolve() != store.resolve():
        raise ConfigError(
            f"{directory} belongs to the store {store}; omit --store to continue with it, or "
            "choose another --dir"
        )
    for name in ("commit_log_file_size", "queue_file_size", "index_slots", "index_entries"):
        wanted = getattr(wishes, name)
        if wanted is not None and wanted != getattr(last.sizes, name):
            raise ConfigError(
                f"{directory} has {name} {getattr(last.sizes, name)}, which cannot be changed to "
                f"{wanted}"
            )
    if NONE != last.coordinator != (wishes.coordinator or last.coordinator):
        raise ConfigError(
            f"{directory} elects its master (coordinator: {last.coordinator}), and its nodes start "
            "with no other coordinator and not without one: omit --no-election and --etcd, or "
            "choose another --dir"
        )
    names = (
        "slaves", "flush", "replication", "min_in_sync", "coordinator", "secure", "follow",
        "rocketmq",
    )  # fmt: skip
    wanted = {name: getattr(wishes, name) for name in names}
    return replace(last, **{name: each for name, each in wanted.items() if each is not None})


def _new_plan(directory: Path, wishes: Wishes) -> ClusterPlan:
    if wishes.store is not None and not wishes.store.is_dir():
        raise ConfigError(f"--store {wishes.store} is not a folder")
    defaults = StoreConfig(directory)
    store = StoreConfig(
        wishes.store if wishes.store is not None else directory / "n0" / "store",
        commit_log_file_size=wishes.commit_log_file_size or DEFAULT_LOG_FILE_SIZE,
        queue_file_size=wishes.queue_file_size or defaults.queue_file_size,
        index_slots=wishes.index_slots or defaults.index_slots,
        index_entries=wishes.index_entries or defaults.index_entries,
    )
    geometry = Geometry.of(store, RealFileSystem())
    geometry.check_index()
    # with a broker as master one copy is enough to begin with
    few = 0 if wishes.follow else DEFAULT_SLAVES
    slaves = few if wishes.slaves is None else wishes.slaves
    replication = wishes.replication or "sync"
    # one slave may die and puts continue; with a single slave they would stop
    min_in_sync = 2 if slaves >= 2 and replication == "sync" else 1
    return ClusterPlan(
        cluster_id=f"local-{os.urandom(4).hex()}",
        slaves=slaves,
        store="" if wishes.store is None else str(wishes.store.resolve()),
        sizes=Sizes(
            geometry.log_file_size, geometry.queue_file_size, store.index_slots, store.index_entries
        ),
        flush=wishes.flush or "async",
        replication=replication,
        min_in_sync=wishes.min_in_sync or min_in_sync,
        # a node alone has no other one to elect
        coordinator=wishes.coordinator or (EMBEDDED if slaves and not wishes.follow else NONE),
        secure=bool(wishes.secure),
        follow=wishes.follow or "",
        rocketmq=bool(wishes.rocketmq),
    )


def _load(path: Path) -> ClusterPlan | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        return ClusterPlan(**{**content, "sizes": Sizes(**content["sizes"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


class LocalCluster:
    """See the module. `port` is n0's; the others follow, HTTP 100 above each. `console`: every node
    serves one, with changes."""

    def __init__(
        self, directory: Path, plan: ClusterPlan, port: int, *, console: bool = False
    ) -> None:
        self.directory = directory
        self._console = console
        self.plan = plan
        elects = plan.coordinator != NONE
        self.security = LocalSecurity(directory, plan.cluster_id) if plan.secure else None
        self.coordinator = (
            LocalCoordinator(directory, plan.coordinator, port, self.security) if elects else None
        )
        self.nodes = [
            NodeProcess(
                node_id=f"n{number}",
                role=ELECTED if elects else "slave" if number else "master",
                endpoint=f"127.0.0.1:{port + number}",
                http_endpoint=f"127.0.0.1:{port + number + HTTP_PORT_DISTANCE}",
                config=directory / f"n{number}" / "node.toml",
                log=directory / f"n{number}" / "node.log",
            )
            for number in range(plan.slaves + 1)
        ]

    @property
    def endpoints(self) -> str:
        return ",".join(node.endpoint for node in self.nodes)

    def console(self) -> str:
        """A line for people: where the console of the first node is, and how to be let in."""
        address = f"{self.nodes[0].http_endpoint}/console/"
        if self.security is None:
            return f"console: http://{address}"
        authority, token = self.security.authority, self.security.file(OPERATOR, "token")
        return f"console: https://{address} (signed by {authority}; log in with {token})"

    @property
    def client(self) -> Security:
        """What a client needs to be let in."""
        return Security() if self.security is None else self.security.client

    def check_ports(self) -> None:
        """Raises ListenError if another process has the port of a node. Were that a node of
        another cluster, its answers would be taken for those of the node that cannot start."""
        if self.coordinator is not None:
            self.coordinator.check_ports()
        for node in self.nodes:
            usable(node.node_id, node.endpoint)
            usable(node.node_id, node.http_endpoint)

    def open_doors(self, ports: DoorPorts | None = None) -> None:
        """Give each node the ports of RocketMQ's clients, if the plan has them. Raises
        ListenError."""
        if not self.plan.rocketmq:
            return
        endpoints = [each for node in self.nodes for each in (node.endpoint, node.http_endpoint)]
        own = {split_endpoint(each)[1] for each in endpoints}
        own.update(self.coordinator.ports if self.coordinator is not None else ())
        remoting, grpc = both_doors(ports or DoorPorts(), len(self.nodes), own)
        for node, first, second in zip(self.nodes, remoting, grpc, strict=True):
            node.rocketmq_endpoint, node.rocketmq_grpc_endpoint = first, second

    def write(self) -> None:
        """Write the plan, every node's configuration, and certificates and tokens."""
        if self.security is not None:
            self.security.prepare([node.node_id for node in self.nodes], self.endpoints)
        for node in self.nodes:
            node.config.parent.mkdir(parents=True, exist_ok=True)
            if self.security is not None:  # other users of the machine would read the log itself
                node.config.parent.chmod(0o700)
            head = tomlkit.comment("written by `tandemlog up` at each start").as_string()
            node.config.write_text(f"{head}\n{tomlkit.dumps(self._settings(node))}")
        path = self.directory / PLAN
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(self.plan), indent=2) + "\n")
        temporary.replace(path)

    def _settings(self, node: NodeProcess) -> dict[str, Any]:
        """The node's configuration."""
        plan, security = self.plan, self.security
        store = node.config.parent / "store"
        if node is self.nodes[0] and plan.store:
            store = Path(plan.store)
        settings: dict[str, Any] = {
            "cluster_id": plan.cluster_id,
            "node_id": node.node_id,
            **self._role(node),
            "listen": node.endpoint,
            "http_listen": node.http_endpoint,
            "store": {
                "directory": str(store.absolute()),
                **asdict(plan.sizes),
                "flush": plan.flush,
            },
            "replication": {"mode": plan.replication, "min_in_sync": plan.min_in_sync},
        }
        if self._console:
            settings["console"] = {"enabled": True, "writes": True}
        if node.rocketmq_endpoint:
            settings["rocketmq_clients"] = {
                "listen": node.rocketmq_endpoint,
                "grpc_listen": node.rocketmq_grpc_endpoint,
            }
        if self.coordinator is not None:
            settings["coordinator"] = {
                "endpoints": self.coordinator.endpoints,
                "members": [each.node_id for each in self.nodes],
                "tls": security is not None,
            }
        if security is not None:
            settings["tls"] = {
                "ca_file": str(security.authority),
                "cert_file": str(security.file(node.node_id, "crt")),
                "key_file": str(security.file(node.node_id, "key")),
                "client_certificates": "required",
                "reload_interval_ms": RELOAD_MS,
            }
            settings["security"] = {
                "access_file": str(security.access_file),
                "token_file": str(security.file(node.node_id, "token")),
            }
        return settings

    def _role(self, node: NodeProcess) -> dict[str, str]:
        if self.coordinator is not None:
            return {}
        if self.plan.follow and node is self.nodes[0]:
            return {"follow": self.plan.follow}
        master = self.nodes[0].endpoint if node.role == "slave" else ""
        return {"role": node.role, "master": master}

    def start(self) -> None:
        """Start every process; they find each other."""
        if self.coordinator is not None:
            self.coordinator.start()
        for node in self.nodes:
            self.start_node(node)

    def start_node(self, node: NodeProcess) -> None:
        """Start the process of one node, for the first time or again.

        It ends with the thread that started it (the kernel counts threads as parents): call this
        in one that lives as long as the cluster.
        """
        node.log_start = node.log.stat().st_size if node.log.exists() else 0
        with node.log.open("ab") as log:
            node.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "tandemlog", "node"),
                    *("--config", str(node.config), "--with-parent", str(os.getpid())),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=with_package_path(),
            )

    def stop(self, timeout_s: float = 30.0) -> list[str]:
        """Stop the master, then the slaves; the answer names those that did not stop cleanly."""
        faults: list[str] = []
        masters = self._masters()
        for group in (masters, [node for node in self.nodes if node not in masters]):
            for node in group:
                if node.process is not None and node.process.poll() is None:
                    node.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + timeout_s
            for node in group:
                faults += _wait(node, deadline)
        if self.coordinator is not None:
            self.coordinator.stop()
        return faults

    def _masters(self) -> list[NodeProcess]:
        """The node that says of itself that it is the master; n0 if roles are configured."""
        if self.coordinator is None:
            return self.nodes[:1]
        running = [node for node in self.nodes if node.exit_code is None and node.process]
        return [node for node in running if self._says_master(node)][:1]

    def _says_master(self, node: NodeProcess) -> bool:
        scheme, context = "http", None
        try:
            if self.security is not None:
                scheme, context = "https", self.security.client_context()
            url = f"{scheme}://{node.http_endpoint}/liveness"
            direct = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
            with direct.open(url, timeout=1.0) as response:
                return bool(json.load(response)["role"] == "master")
        except (OSError, ValueError, KeyError):
            return False


def _wait(node: NodeProcess, deadline: float) -> list[str]:
    if node.process is None:
        return []
    try:
        code = node.process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        node.process.kill()
        node.process.wait()
        return [f"{node.node_id} did not stop in time and was killed"]
    # a node that did not come so far as to listen for signals has not opened its store either
    return [f"{node.node_id} {ending(code)}"] if code not in (0, -signal.SIGTERM) else []


def ending(code: int) -> str:
    """How a process ended, in words."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

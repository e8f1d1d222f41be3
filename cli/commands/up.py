"""`tandemlog up`: a local cluster in the foreground, with a table of its nodes.

A node that has ended is restarted: one that is killed comes back within a second, and one that
cannot start does not keep the machine busy.

    ends, having run long    restart after FIRST_S
    ends again soon          the pause doubles, up to LONGEST_S
    exit code 0              an operator stopped it: leave it alone
    a code of NOT_RESTARTED  a restart would end in the same way: leave it alone
"""

import asyncio
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tandemlog.cluster.connection import Connection
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.cluster.topology import Topology
from tandemlog.errors import TandemlogError
from tandemlog.format.calls import DEFAULT_PORT
from tandemlog.format.words import counted
from tandemlog_server.node.certs.authority import CertificateError
from tandemlog_server.node.settings.listen_endpoints import ListenError
from tandemlog_server.rocketmq.follow.address import parse_address

from ..cluster.nodes_table import alarm_lines, node_rows, picture
from ..local.local_cluster import (
    DEFAULT_LOG_FILE_SIZE,
    DEFAULT_SLAVES,
    ELECTED,
    HTTP_PORT_DISTANCE,
    MAX_SLAVES,
    ClusterError,
    LocalCluster,
    NodeProcess,
    Wishes,
    ending,
    locked,
    plan_cluster,
)
from ..local.local_coordinator import ETCD, NONE, PORT_DISTANCE
from ..local.local_doors import GRPC_PORT, REMOTING_PORT, DoorPorts, how_to_use
from ..shared.command import new_app
from ..shared.exit_codes import ADDRESS, OK, STORE, USAGE
from ..shared.failures import CommandError
from ..shared.options import DEFAULTS

REFRESH_S = 0.5
FIRST_S = 0.5
LONGEST_S = 30.0
LONG_RUN_S = 60.0
NOT_RESTARTED = frozenset({OK, USAGE, STORE, ADDRESS})

app = new_app()


@app.command("up")
def up_command(
    slaves: Annotated[
        int | None,
        typer.Option(
            "--slaves",
            min=0,
            max=MAX_SLAVES,
            help="Number of slaves beside the master. [default: the value of the last run, or "
            f"{DEFAULT_SLAVES}]",
        ),
    ] = None,
    directory: Annotated[
        Path,
        typer.Option(
            "--dir", help="Folder for the cluster's data; the next `up` continues with it."
        ),
    ] = Path("tandemlog-data"),
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            help="Existing store of tandemlog or RocketMQ that the first node serves in place. "
            "[default: a store below --dir]",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=1,
            max=65_535 - HTTP_PORT_DISTANCE - MAX_SLAVES,
            help="gRPC port of the first node. The others use the ports after it, every node "
            f"serves HTTP {HTTP_PORT_DISTANCE} ports above its gRPC port, and the coordinator is "
            f"{PORT_DISTANCE} ports above the first node.",
        ),
    ] = DEFAULT_PORT,
    flush: Annotated[
        str | None,
        typer.Option(
            "--flush",
            help="async: flush the log at intervals; sync: flush it before a put is acknowledged. "
            "[default: the value of the last run, or async]",
        ),
    ] = None,
    replication: Annotated[
        str | None,
        typer.Option(
            "--replication",
            help="async: acknowledge a put once the master has it; sync: once every in-sync "
            "replica has it; sync-degrade: the same, but a master whose slaves are all gone "
            "continues alone. [default: the value of the last run, or sync]",
        ),
    ] = None,
    min_in_sync: Annotated[
        int | None,
        typer.Option(
            "--min-in-sync",
            min=1,
            help="Number of in-sync replicas, including the master, that a put requires. "
            "[default: the value of the last run, or 2 if there are two or more slaves and "
            "replication is sync, or 1]",
        ),
    ] = None,
    etcd: Annotated[
        bool,
        typer.Option(
            "--etcd",
            help="Elect by a cluster of three etcd members, which are started here too; etcd must "
            "be installed. [default: by one `tandemlog coordinator`]",
        ),
    ] = False,
    no_election: Annotated[
        bool,
        typer.Option("--no-election", help="The first node is the master, whatever happens to it."),
    ] = False,
    follow: Annotated[
        str | None,
        typer.Option(
            "--follow",
            metavar="BROKER",
            help="RocketMQ broker whose log the first node follows, as rocketmq://HOST:PORT (its "
            "listen port) or rocketmq://HOST:PORT,HOST:PORT/NAME (name servers, and its name); the "
            "others are slaves of the first node, none without --slaves.",
        ),
    ] = None,
    secure: Annotated[
        bool | None,
        typer.Option(
            "--secure/--no-secure",
            help="Make an authority, certificates and tokens in DIR/secure, and require them: TLS "
            "on every connection, a certificate and an identity of every caller. [default: the "
            "value of the last run, or no]",
        ),
    ] = None,
    rocketmq: Annotated[
        bool | None,
        typer.Option(
            "--rocketmq/--no-rocketmq",
            help="Open the ports of RocketMQ's own clients on every node: name server and broker "
            "in one, and the gRPC API of 5.x. [default: the value of the last run, or no]",
        ),
    ] = None,
    rocketmq_port: Annotated[
        int | None,
        typer.Option(
            "--rocketmq-port",
            min=1,
            max=65_535 - MAX_SLAVES,
            help="The name server's port of the first node; the others use the ports after it. "
            f"Opens both as --rocketmq does. [default: {REMOTING_PORT} and the ports after it, a "
            "free one in place of each that is taken]",
        ),
    ] = None,
    rocketmq_grpc_port: Annotated[
        int | None,
        typer.Option(
            "--rocketmq-grpc-port",
            min=1,
            max=65_535 - MAX_SLAVES,
            help="The same for clients of the 5.x API. "
            f"[default: {GRPC_PORT} and the ports after it]",
        ),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option("--restart/--no-restart", help="Restart a node of this cluster that dies."),
    ] = True,
    commit_log_file_size: Annotated[
        int | None,
        typer.Option(
            "--commit-log-file-size",
            min=4096,
            help="Size of a commit log file in bytes, for a new store. "
            f"[default: {DEFAULT_LOG_FILE_SIZE}]",
        ),
    ] = None,
    queue_file_size: Annotated[
        int | None,
        typer.Option(
            "--queue-file-size",
            min=20,
            help=f"Size of a consume queue file in bytes. [default: {DEFAULTS.queue_file_size}]",
        ),
    ] = None,
    index_slots: Annotated[
        int | None,
        typer.Option(
            "--index-slots",
            min=1,
            help=f"Number of hash slots in each index file. [default: {DEFAULTS.index_slots}]",
        ),
    ] = None,
    index_entries: Annotated[
        int | None,
        typer.Option(
            "--index-entries",
            min=2,
            help="Number of entries for which each index file has room. "
            f"[default: {DEFAULTS.index_entries}]",
        ),
    ] = None,
) -> None:
    """Run a cluster on this machine until Ctrl-C stops it cleanly: a master and its slaves.

    The nodes elect the master: if it dies, an in-sync slave takes over within a second. Each node
    is a separate process in this process group. It logs to DIR/<node>/node.log and reads its
    configuration from DIR/<node>/node.toml. With --store, the first node serves an existing
    RocketMQ store in place; if its index or queue files do not have RocketMQ's default sizes, give
    them with --index-slots, --index-entries and --queue-file-size.
    """
    for name, value in (("--flush", flush), ("--replication", replication)):
        modes = ("async", "sync", "sync-degrade") if name == "--replication" else ("async", "sync")
        if value not in (None, *modes):
            raise typer.BadParameter(f"{name} must be one of {', '.join(modes)}, not {value!r}")
    if follow is not None:
        try:
            parse_address(follow)
        except ValueError as error:
            raise typer.BadParameter(f"--follow {error}") from None
        if etcd:
            raise typer.BadParameter("--follow and --etcd exclude each other: nothing is elected")
    doors = DoorPorts(rocketmq_port, rocketmq_grpc_port)
    if rocketmq is False and doors != DoorPorts():
        raise typer.BadParameter(
            "--no-rocketmq and a port for RocketMQ's clients exclude each other"
        )
    if etcd and no_election:
        raise typer.BadParameter("--etcd and --no-election exclude each other")
    wishes = Wishes(
        slaves=slaves,
        store=store,
        commit_log_file_size=commit_log_file_size,
        queue_file_size=queue_file_size,
        index_slots=index_slots,
        index_entries=index_entries,
        flush=flush,
        replication=replication,
        min_in_sync=min_in_sync,
        coordinator=ETCD if etcd else NONE if no_election else None,
        secure=secure,
        follow=follow,
        rocketmq=True if doors != DoorPorts() else rocketmq,
    )
    try:
        plan = plan_cluster(directory, wishes)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        with locked(directory):
            cluster = LocalCluster(directory, plan, port, console=True)
            _choose_ports(cluster, doors)
            cluster.write()
            asyncio.run(_Foreground(cluster, restart=restart).run())
    except CertificateError as error:
        raise CommandError(str(error), STORE) from None


def _choose_ports(cluster: LocalCluster, doors: DoorPorts) -> None:
    """Raises CommandError for one that another process has."""
    option = "--port"
    try:
        cluster.check_ports()
        option = "--rocketmq-port or --rocketmq-grpc-port"
        cluster.open_doors(doors)
    except ListenError as error:
        raise CommandError(f"{error}; choose another {option}", ADDRESS) from None


@dataclass(slots=True)
class Restarts:
    """The restarts of one node. Times are seconds of the caller's monotonic clock."""

    started_at: float
    pause_s: float = FIRST_S
    due_at: float | None = None

    def ended(self, exit_code: int, now: float) -> bool:
        """The node has ended; whether it is to be restarted. A second call changes nothing."""
        if exit_code in NOT_RESTARTED:
            return False
        if self.due_at is None:
            if now - self.started_at >= LONG_RUN_S:
                self.pause_s = FIRST_S
            self.due_at = now + self.pause_s
        return True

    def is_due(self, now: float) -> bool:
        return self.due_at is not None and now >= self.due_at

    def restarted(self, now: float) -> None:
        """It runs again. The next pause is longer, unless it now runs for long."""
        self.started_at, self.due_at = now, None
        self.pause_s = min(2 * self.pause_s, LONGEST_S)


class _Foreground:
    """Starts the cluster, shows it, and stops it on SIGINT or SIGTERM, or when a start fails.
    Nodes that die are started again, unless that is not wanted."""

    def __init__(self, cluster: LocalCluster, *, restart: bool) -> None:
        self._cluster = cluster
        self._restarts: dict[str, Restarts] = {}
        self._restart = restart
        self._console = Console(highlight=False)
        self._stop = asyncio.Event()
        self._ready = False
        self._lines: dict[str, str] = {}
        self._alarms: list[str] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        self._cluster.start()
        now = loop.time()
        self._restarts = {node.node_id: Restarts(now) for node in self._cluster.nodes}
        try:
            async with Connection(
                self._cluster.endpoints,
                ConnectionOptions(discovery_timeout_ms=1_000, security=self._cluster.client),
            ) as connection:
                await self._watch(connection)
        finally:
            faults = await asyncio.to_thread(self._cluster.stop)
        if faults:
            raise ClusterError("; ".join(faults))
        self._console.print("stopped cleanly; the next `tandemlog up` continues with this data")

    async def _watch(self, connection: Connection) -> None:
        with Live(
            Text("starting …"), console=self._console, auto_refresh=False, transient=True
        ) as live:
            while not self._stop.is_set():
                topology = await self._asked(connection)
                self._check_start()
                self._restart_ended()
                rows = self._rows(topology)
                self._alarms = alarm_lines(topology)
                if self._console.is_terminal:
                    live.update(self._picture(rows), refresh=True)
                else:
                    self._tell_changes(rows)
                self._tell_ready(topology)
                try:
                    async with asyncio.timeout(REFRESH_S):
                        await self._stop.wait()
                except TimeoutError:
                    continue

    async def _asked(self, connection: Connection) -> Topology:
        """What the nodes say, or else what they said last: the cluster does not end because its
        operator's token was revoked."""
        try:
            return await connection.refresh()
        except TandemlogError as error:
            self._tell("asking", f"the nodes cannot be asked: {error}")
            return connection.topology

    def _check_start(self) -> None:
        """Raises ClusterError if a node ended before the cluster was ready, or all have."""
        ended = [node for node in self._cluster.nodes if node.exit_code is not None]
        stay = [node for node in ended if not self._will_restart(node)]
        if ended and (not self._ready or len(stay) == len(self._cluster.nodes)):
            node = ended[0]
            code = node.exit_code or 0
            words = node.last_words()
            raise ClusterError(
                f"{node.node_id} {ending(code)}{f': {words}' if words else ''} (see {node.log})",
                code if code > 0 else 1,
            )

    def _will_restart(self, node: NodeProcess) -> bool:
        """Whether a node that has ended is to be restarted, after a pause."""
        if not self._restart or not self._ready or node.exit_code is None:
            return False
        now = asyncio.get_running_loop().time()
        return self._restarts[node.node_id].ended(node.exit_code, now)

    def _restart_ended(self) -> None:
        if self._restart and self._cluster.coordinator is not None:
            self._cluster.coordinator.restart_ended()
        now = asyncio.get_running_loop().time()
        for node in self._cluster.nodes:
            restarts = self._restarts[node.node_id]
            if self._will_restart(node) and restarts.is_due(now):
                self._cluster.start_node(node)
                restarts.restarted(now)

    def _rows(self, topology: Topology) -> list[dict[str, Any]]:
        """A row a node: what it says of itself, or what became of its process."""
        rows = {row["node"]: row for row in node_rows(topology) if row["state"] != "unreachable"}
        return [
            rows.get(node.node_id) or _process_row(node, restarts=self._will_restart(node))
            for node in self._cluster.nodes
        ]

    def _picture(self, rows: list[dict[str, Any]]) -> Group:
        hint = f"data in {self._cluster.directory}   Ctrl-C stops it"
        plan = self._cluster.plan
        settings = (
            f"cluster {plan.cluster_id}  flush {plan.flush}  replication {plan.replication}  "
            f"min_in_sync {plan.min_in_sync}  coordinator {plan.coordinator}"
        )
        nodes = picture(rows, self._alarms, self._console)
        return Group(Text(settings), nodes, Text(hint, style="dim"))

    def _tell_changes(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            line = f"{row['node']} {row['role']} {row['endpoint']} {row['state']}"
            if row.get("detail"):
                line += f": {row['detail']}"
            self._tell(row["node"], line)
        for line in self._alarms:
            self._tell(line, line)
        sys.stdout.flush()

    def _tell(self, about: str, line: str) -> None:
        if self._lines.get(about) != line:
            self._lines[about] = line
            self._console.print(line, markup=False, soft_wrap=True)

    def _tell_ready(self, topology: Topology) -> None:
        reached = [node for node in topology.nodes if node.reachable]
        master = topology.master
        complete = master is not None and len(reached) == len(self._cluster.nodes)
        if not self._ready and complete:
            self._ready = True
            first = self._cluster.nodes[0]
            self._console.print(
                f"ready: {counted(len(reached), 'node')}, --endpoint {first.endpoint}", markup=False
            )
            self._console.print(self._cluster.console(), markup=False, soft_wrap=True)
            if self._cluster.security is not None:
                for line in self._cluster.security.how_to_connect():
                    self._console.print(line, markup=False, soft_wrap=True)
            nodes = [node for node in self._cluster.nodes if node.rocketmq_endpoint]
            for line in how_to_use(
                [node.rocketmq_endpoint for node in nodes],
                [node.rocketmq_grpc_endpoint for node in nodes],
                secure=self._cluster.plan.secure,
            ):
                self._console.print(line, markup=False, soft_wrap=True)
            sys.stdout.flush()


def _process_row(node: NodeProcess, *, restarts: bool) -> dict[str, Any]:
    code = node.exit_code
    if code is None:
        state, detail = "starting", ""
    else:
        state = "down"
        way_back = (
            "it is restarted soon"
            if restarts
            else f"restart it with: tandemlog node --config {node.config}"
        )
        detail = f"{ending(code)}; {way_back}"
    return {
        "node": node.node_id,
        "role": "-" if node.role == ELECTED else node.role,
        "endpoint": node.endpoint,
        "state": state,
        "detail": detail,
    }

"""The commands that show the nodes of a cluster: list, check, connections."""

import asyncio
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.connection import Connection
from tandemlog.cluster.topology import Topology
from tandemlog.errors import NodeUnavailableError, TandemlogError

from ..cluster.elections_table import coordinator_notes
from ..cluster.nodes_table import COLUMNS, TITLES, alarm_lines, node_rows, picture, summary
from ..cluster.verdict import Level, Verdict, judge
from ..output.tables import Format, error_console, write_rows
from ..shared.command import new_app
from ..shared.online import ClusterOptions, NodeOption, each_node, run_admin
from ..shared.options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    Endpoint,
    Timeout,
    check_endpoints,
    connection_options,
)

NO_MASTER = "no reachable node is the master"
CONNECTION_COLUMNS = (
    "node", "peer", "identity", "seconds", "calls", "streams", "long_polls", "methods",
)  # fmt: skip

_CODES = (
    "Exit codes: 0 OK · 1 WARNING: a node is missing or not in sync, no slave could take over now, "
    "failover is paused, or the master does not reach the coordinator · 2 CRITICAL: there is no "
    "master, it acknowledges no puts, or an alarm is on · 3 UNKNOWN: no node could be reached."
)

app = new_app()


@app.command("list")
def list_command(
    *,
    cluster: ClusterOptions,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            "-w",
            metavar="SECONDS",
            min=0.1,
            max=3_600,
            help="Show the table again every SECONDS, until Ctrl-C.",
        ),
    ] = None,
) -> None:
    """Show the nodes of a cluster: role, state, offsets (in bytes of the log) and lag.

    On a terminal the table has the columns for which there is room; a pipe and --format jsonl have
    all of them.
    """
    if watch is not None:
        asyncio.run(_watch(cluster, watch))
        return
    topology = cluster.ask(lambda admin: admin.cluster())
    if not any(node.reachable for node in topology.nodes):
        raise NodeUnavailableError(f"no node can be reached: {topology.asked_text()}")
    _show(topology, cluster.form)


@app.command("check", epilog=_CODES)
def check_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Check whether the cluster is well and could lose its master now.

    Prints one line, as monitoring systems expect of a plugin; the exit code is the verdict.
    """
    try:
        verdict = judge(run_admin(endpoint, timeout, lambda admin: admin.cluster()))
    except TandemlogError as error:
        verdict = Verdict(Level.UNKNOWN, (str(error),))
    if not quiet:
        typer.echo(verdict.line)
    raise typer.Exit(int(verdict.level))


@app.command("connections")
def connections_command(node: NodeOption = "", *, cluster: ClusterOptions) -> None:
    """Show who has calls in progress at the nodes: producers, consumers, slaves, this command.

    A producer has a stream `Append`, a consumer that waits a long poll `Pull`, a slave a stream
    `Replicate`. `seconds` is how long the oldest call of the connection has been in progress. An
    idle connection is not shown: gRPC does not tell of it.
    """

    async def work(admin: AsyncAdmin) -> list[dict[str, Any]]:
        return [
            {
                "node": each.node_id,
                "peer": each.peer,
                "identity": each.identity or None,
                "seconds": round(each.seconds, 1),
                "calls": each.calls,
                "streams": each.streams,
                "long_polls": each.long_polls,
                "methods": ", ".join(each.methods),
            }
            for node_id in await each_node(admin, node)
            for each in await admin.connections(node_id)
        ]

    write_rows(cluster.ask(work), cluster.form, CONNECTION_COLUMNS)


def _show(topology: Topology, form: Format) -> None:
    rows, console = node_rows(topology), Console(highlight=False)
    if form is Format.JSONL or not console.is_terminal:
        write_rows(rows, form, COLUMNS, TITLES)
        notes = alarm_lines(topology)
    else:
        console.print(picture(rows, alarm_lines(topology), console), soft_wrap=True)
        notes = []
    if form is Format.TABLE:
        error_console().print(Text(summary(topology), style="dim"))
        for line in (*coordinator_notes(topology), *notes):
            typer.echo(line, err=True)
        if topology.master is None:
            typer.echo(NO_MASTER, err=True)


async def _watch(cluster: ClusterOptions, every_s: float) -> None:
    """One picture that changes, on a terminal; else one after the other."""
    console = Console(highlight=False)
    options = connection_options(cluster.timeout)
    async with Connection(check_endpoints(cluster.endpoint), options) as connection:
        if cluster.form is Format.JSONL or not console.is_terminal:
            while True:
                _show(await connection.refresh(), cluster.form)
                await asyncio.sleep(every_s)
        with Live(Text("asking …"), console=console, auto_refresh=False) as live:
            while True:
                topology = await connection.refresh()
                nodes = picture(node_rows(topology), alarm_lines(topology), console)
                text = summary(topology) if topology.master is not None else NO_MASTER
                live.update(Group(nodes, Text(text, style="dim")), refresh=True)
                await asyncio.sleep(every_s)

"""`tandemlog list`: the nodes of a cluster."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tandemlog.cluster.connection import Connection
from tandemlog.errors import NodeUnavailableError

from ..cluster.elections_table import coordinator_notes
from ..cluster.nodes_table import COLUMNS, TITLES, alarm_lines, node_rows, picture, summary
from ..output.tables import Format, error_console, write_rows
from ..shared.command import new_app
from ..shared.exit_codes import epilog
from ..shared.failures import one_line_errors
from ..shared.online import run_admin
from ..shared.options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    Endpoint,
    FormatOption,
    Timeout,
    check_endpoints,
    connection_options,
)

if TYPE_CHECKING:
    from tandemlog.cluster.topology import Topology

NO_MASTER = "no reachable node is the master"

app = new_app()


@app.command("list", epilog=epilog())
def list_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            "-w",
            metavar="SECONDS",
            min=0.1,
            max=3_600,
            help="Show the table again every SECONDS, until Ctrl-C.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the nodes of a cluster: role, state, offsets (in bytes of the log) and lag.

    On a terminal the table has the columns for which there is room; a pipe and --format jsonl have
    all of them.
    """
    with one_line_errors():
        if watch is not None:
            asyncio.run(_watch(endpoint, timeout, watch, form))
            return
        topology: Topology = run_admin(endpoint, timeout, lambda admin: admin.cluster())
        if not any(node.reachable for node in topology.nodes):
            raise NodeUnavailableError(f"no node can be reached: {topology.asked_text()}")
        _show(topology, form)


def _show(topology: "Topology", form: Format) -> None:
    rows, console = node_rows(topology), Console(highlight=False)
    if form is Format.JSONL or not console.is_terminal:
        write_rows(rows, form, COLUMNS, TITLES)
        notes = alarm_lines(topology)
    else:
        console.print(picture(rows, alarm_lines(topology), console), soft_wrap=True)
        notes = []
    if form is Format.TABLE:
        error_console().print(Text(summary(topology), style="dim"))
        for line in coordinator_notes(topology):
            typer.echo(line, err=True)
        for line in notes:
            typer.echo(line, err=True)
        if topology.master is None:
            typer.echo(NO_MASTER, err=True)


async def _watch(endpoint: str, timeout_s: float, every_s: float, form: Format) -> None:
    """One picture that changes, on a terminal; else one after the other."""
    console = Console(highlight=False)
    options = connection_options(timeout_s)
    async with Connection(check_endpoints(endpoint), options) as connection:
        if form is Format.JSONL or not console.is_terminal:
            while True:
                _show(await connection.refresh(), form)
                await asyncio.sleep(every_s)
        with Live(Text("asking …"), console=console, auto_refresh=False) as live:
            while True:
                topology = await connection.refresh()
                nodes = picture(node_rows(topology), alarm_lines(topology), console)
                said = summary(topology) if topology.master is not None else NO_MASTER
                live.update(Group(nodes, Text(said, style="dim")), refresh=True)
                await asyncio.sleep(every_s)

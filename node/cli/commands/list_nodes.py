"""`tandemlog list`: the nodes of a cluster."""

from typing import TYPE_CHECKING

import typer
from rich.text import Text

from tandemlog.errors import NodeUnavailableError

from ..command import new_app
from ..exit_codes import epilog
from ..failures import one_line_errors
from ..nodes_table import COLUMNS, TITLES, alarm_lines, node_rows, summary
from ..online import run_admin
from ..options import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, Endpoint, FormatOption, Timeout
from ..output import Format, error_console, write_rows

if TYPE_CHECKING:
    from tandemlog.cluster.topology import Topology

app = new_app()


@app.command("list", epilog=epilog())
def list_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the nodes of a cluster: role, state, offsets (in bytes of the log) and lag."""
    with one_line_errors():
        topology: Topology = run_admin(endpoint, timeout, lambda admin: admin.cluster())
        if not any(node.reachable for node in topology.nodes):
            raise NodeUnavailableError(f"no node can be reached: {topology.asked_text()}")
        write_rows(node_rows(topology), form, COLUMNS, TITLES)
        if form is Format.TABLE:
            error_console().print(Text(summary(topology), style="dim"))
            for line in alarm_lines(topology):
                typer.echo(line, err=True)
            if topology.master is None:
                typer.echo("no reachable node is the master", err=True)

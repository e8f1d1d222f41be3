"""`tandemlog topology`: who leads, who is in sync and why not, from the coordinator itself."""

from itertools import chain

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.elections import Coordination
from tandemlog.cluster.topology import Topology

from ...cluster.elections_table import (
    TOPOLOGY_COLUMNS,
    TOPOLOGY_TITLES,
    cluster_row,
    topology_lines,
    topology_rows,
)
from ...output.tables import Format, write_lines, write_table
from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.failures import one_line_errors
from ...shared.online import run_admin
from ...shared.options import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, Endpoint, FormatOption, Timeout

app = new_app()


async def _both(admin: AsyncAdmin) -> tuple[Coordination, Topology]:
    return await admin.coordination(), await admin.cluster()


@app.command("topology", epilog=epilog())
def topology_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show who leads and who is in sync, as the coordinator has it now.

    For a cluster that elects its master. Below the table stands, for each node that is not in the
    in-sync set, the reason. With --format jsonl the last line describes the cluster.
    """
    with one_line_errors():
        state, topology = run_admin(endpoint, timeout, _both)
        rows = topology_rows(state, topology)
        if form is Format.JSONL:
            write_lines(chain(rows, [cluster_row(state)]))
            return
        write_table(rows, TOPOLOGY_COLUMNS, TOPOLOGY_TITLES)
        for line in topology_lines(state, rows):
            typer.echo(line)

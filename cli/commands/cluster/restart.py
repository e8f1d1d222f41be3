"""`tandemlog restart`: every node once, one after the other, without an outage."""

from typing import Annotated

import typer

from tandemlog.admin import AsyncAdmin

from ...shared.command import new_app
from ...shared.exit_codes import USAGE, epilog
from ...shared.failures import CommandError, one_line_errors
from ...shared.online import run_admin
from ...shared.options import DEFAULT_ENDPOINT, DryRun, Endpoint, timeout_option
from ..restart import Restarting, restart_all

app = new_app()


@app.command("restart", epilog=epilog())
def restart_command(
    rolling: Annotated[
        bool, typer.Option("--rolling", help="One node after the other: the only way there is.")
    ] = False,
    command: Annotated[
        str,
        typer.Option(
            "--command",
            metavar="COMMAND",
            help="What restarts a node, run by the shell here; {node} and {host} are put in: "
            "'ssh {host} systemctl restart tandemlog'. Without it, the program names each node and "
            "waits until it was restarted.",
        ),
    ] = "",
    dry_run: DryRun = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    timeout: Annotated[
        float, timeout_option("How many seconds each node may take until it is in sync again.")
    ] = 600.0,
) -> None:
    """Restart every node of a cluster: slaves first, then a switchover, then the old master.

    A node is restarted only while all others are in sync, and the next one only once it is in sync
    again, so puts continue. What is not well before stops it before anything happens.
    """
    work = Restarting(command, timeout, dry_run=dry_run)

    async def run(admin: AsyncAdmin) -> None:
        await restart_all(admin, work)

    with one_line_errors():
        if not rolling:
            raise CommandError("give --rolling: nodes are restarted one after the other", USAGE)
        run_admin(endpoint, 30.0, run)

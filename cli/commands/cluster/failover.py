"""`tandemlog failover`: a master by force, where no election can give one."""

from typing import Annotated

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.elections import ClusterChange

from ...cluster.elections_table import failover_lines
from ...cluster.requests import Wish, carry_out
from ...output.tables import Format
from ...shared.command import new_app
from ...shared.exit_codes import REFUSED, USAGE, epilog
from ...shared.failures import CommandError, one_line_errors
from ...shared.online import run_admin
from ...shared.options import DEFAULT_ENDPOINT, DryRun, Endpoint, FormatOption, Timeout, Yes

app = new_app()

NOT_FORCED = (
    "a failover by force can lose acknowledged messages; it is for a cluster whose in-sync nodes "
    "are all lost. While the master lives, `tandemlog switchover` loses nothing, and when it "
    "dies, an in-sync node takes over by itself. To accept the loss, repeat it with --force; "
    "--dry-run shows how much that may be"
)


@app.command("failover", epilog=epilog())
def failover_command(
    to: Annotated[
        str,
        typer.Option("--to", metavar="NODE", help="The new master.", show_default=False),
    ],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    force: Annotated[
        bool, typer.Option("--force", help="Accept that acknowledged messages may be lost.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = 60.0,
) -> None:
    """Make a node the master by force: acknowledged messages may be lost.

    For a cluster whose in-sync nodes are all lost, so that it cannot elect a master without loss.
    The new epoch is marked unclean; nodes that come back later cut off what the new master lacks.
    The failover waits until the lease of the old master has ended.
    """
    wish = Wish(ClusterChange.FAILOVER, to, dry_run, yes, timeout, form)

    async def work(admin: AsyncAdmin) -> None:
        before, topology = await admin.coordination(), await admin.cluster()
        if topology.master is not None and before.leader_present and not dry_run:
            raise CommandError(
                f"{before.leader_id} is the master and answers: `tandemlog switchover --to {to}` "
                f"loses nothing. If it must be by force, stop {before.leader_id} first",
                REFUSED,
            )
        await carry_out(
            admin, wish, before, lambda target: failover_lines(before, topology, target)
        )

    with one_line_errors():
        if not force and not dry_run:
            raise CommandError(NOT_FORCED, USAGE)
        run_admin(endpoint, timeout, work)

"""`tandemlog switchover`: another master, and nothing is lost."""

from typing import Annotated

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.elections import ClusterChange

from ...cluster.elections_table import switchover_text
from ...cluster.requests import Wish, carry_out
from ...output.tables import Format
from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.failures import one_line_errors
from ...shared.online import run_admin
from ...shared.options import DEFAULT_ENDPOINT, DryRun, Endpoint, FormatOption, Timeout, Yes

app = new_app()


@app.command("switchover", epilog=epilog())
def switchover_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="NODE", help="The new master; without it the best node that is in sync."
        ),
    ] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = 30.0,
) -> None:
    """Make another node the master, as planned: nothing is lost, no put fails.

    The master holds puts back until the other node has the whole log, then gives the next epoch to
    it. If that takes more than 3 seconds the switch is refused, and the master stays.
    """
    wish = Wish(ClusterChange.SWITCHOVER, to, dry_run, yes, timeout, form)

    async def work(admin: AsyncAdmin) -> None:
        before = await admin.coordination()
        await carry_out(admin, wish, before, lambda target: [switchover_text(before, target)])

    with one_line_errors():
        run_admin(endpoint, timeout, work)

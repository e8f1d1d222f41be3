"""`tandemlog takeover`: a node that follows a RocketMQ broker becomes the master of its log."""

import asyncio
from typing import Annotated

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.takeover import Takeover

from ..cluster.moving_over import moved_lines, plan_lines, row_of
from ..cluster.requests import ask_consent
from ..output.tables import Format, write_lines
from ..shared.command import new_app
from ..shared.exit_codes import REFUSED, epilog
from ..shared.failures import CommandError, one_line_errors
from ..shared.online import run_admin
from ..shared.options import DEFAULT_ENDPOINT, DryRun, Endpoint, FormatOption, Timeout, Yes

LOOK_S = 0.3

app = new_app()


@app.command("takeover", epilog=epilog())
def takeover_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Take over whatever the broker does. What it acknowledged and this node does not "
            "have is lost, and a broker that is alive takes writes of its own.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = 120.0,
) -> None:
    """End the following of a RocketMQ broker, and make this node the master of the log.

    It waits until the broker is stopped, or refuses writes, and everything that it had is here.
    Then the node takes puts, in a new epoch; consumer groups continue at their offsets. How long
    writers had to wait is printed, and what producers and consumers have to change.
    """

    async def work(admin: AsyncAdmin) -> None:
        plan = await admin.take_over(force=force, dry_run=True)
        if dry_run or plan.taken_over:
            await _say(admin, plan, form, dry_run=dry_run)
            return
        if form is Format.TABLE:
            typer.echo("\n".join(plan_lines(plan)))
        ask_consent(yes)
        await _say(admin, await _taken(admin, timeout, form, force=force), form, dry_run=False)

    with one_line_errors():
        run_admin(endpoint, timeout, work)


async def _taken(admin: AsyncAdmin, timeout_s: float, form: Format, *, force: bool) -> Takeover:
    """Ask until it is done, and show what it waits for. Raises CommandError."""
    said = ""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = await admin.take_over(force=force)
                if found.taken_over:
                    return found
                if found.waits_for != said:
                    said = found.waits_for
                    if form is Format.TABLE:
                        typer.echo(f"waiting: {said}")
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise CommandError(
            f"not done within {timeout_s:g} s, the node follows on: {said or 'no answer'}", REFUSED
        ) from None


async def _say(admin: AsyncAdmin, found: Takeover, form: Format, *, dry_run: bool) -> None:
    groups = [] if dry_run else await admin.groups()
    if form is Format.TABLE:
        lines = plan_lines(found) if dry_run else moved_lines(found, groups, await admin.cluster())
        typer.echo("\n".join(lines))
    else:
        write_lines([row_of(found, groups, dry_run=dry_run)])

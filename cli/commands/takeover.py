"""`tandemlog takeover`: a node that follows a RocketMQ broker becomes the master of its log."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.takeover import DRY_RUN, Takeover
from tandemlog.cluster.topology import Topology
from tandemlog.format.words import counted

from ..cluster.election_requests import ask_consent
from ..output.tables import Format, Row, date_text, write_lines
from ..shared.command import new_app
from ..shared.exit_codes import REFUSED
from ..shared.failures import CommandError
from ..shared.online import run_admin
from ..shared.options import DEFAULT_ENDPOINT, DryRun, Endpoint, FormatOption, Timeout, Yes

POLL_S = 0.3
MOST_SHOWN = 8

app = new_app()


@app.command("takeover")
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

    run_admin(endpoint, timeout, work)


async def _taken(admin: AsyncAdmin, timeout_s: float, form: Format, *, force: bool) -> Takeover:
    """Ask until it is done, and show what it waits for. Raises CommandError."""
    reason = ""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                reply = await admin.take_over(force=force)
                if reply.taken_over:
                    return reply
                if reply.waits_for != reason:
                    reason = reply.waits_for
                    if form is Format.TABLE:
                        typer.echo(f"waiting: {reason}")
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise CommandError(
            f"not done within {timeout_s:g} s, the node follows on: {reason or 'no answer'}",
            REFUSED,
        ) from None


async def _say(admin: AsyncAdmin, taken: Takeover, form: Format, *, dry_run: bool) -> None:
    groups = [] if dry_run else await admin.groups()
    if form is Format.TABLE:
        lines = plan_lines(taken) if dry_run else moved_lines(taken, groups, await admin.cluster())
        typer.echo("\n".join(lines))
    else:
        write_lines([row_of(taken, groups, dry_run=dry_run)])


def plan_lines(taken: Takeover) -> list[str]:
    """What would be done, and what there is to wait for."""
    end = taken.broker_end_offset
    seen = "was not asked yet" if end < 0 else f"ended at {end} when it was last asked"
    lines = [
        f"{taken.node_id} becomes the master of the log of {taken.broker}, and follows no longer.",
        f"The broker's log {seen}; this node has it up to {taken.end_offset}.",
    ]
    if taken.waits_for not in ("", DRY_RUN):
        lines.append(f"Now it waits: {taken.waits_for}.")
    return lines


def moved_lines(taken: Takeover, groups: Sequence[str], topology: Topology) -> list[str]:
    """What was done, and what there is to change elsewhere."""
    endpoint = topology.master.endpoint if topology.master is not None else "HOST:PORT"
    shown = ", ".join(groups[:MOST_SHOWN])
    more = len(groups) - MOST_SHOWN
    names = f"{shown} and {more} more" if more > 0 else shown or "none"
    lines = [
        f"{taken.node_id} is the master since {date_text(taken.taken_ms)}, epoch {taken.epoch}, "
        f"from log offset {taken.end_offset} on."
    ]
    if taken.break_ms:
        lines.append(
            f"Writers had a break of {taken.break_ms / 1000:.1f} s: the broker stored its newest "
            f"message at {date_text(taken.last_stored_ms)}."
        )
    return [
        *lines,
        f'Producers: send to tandemlog.Producer("{endpoint}"); RocketMQ\'s clients cannot.',
        f'Consumers: tandemlog.Consumer("{endpoint}", group=…) continues where the group of the '
        f"same name stopped; {counted(len(groups), 'group')}: {names}.",
        f"Keep {taken.broker} stopped: started as a master it would take messages of its own. "
        "It may come back as a slave of this node (docs/rocketmq-live.md).",
        "Remove follow from the configuration of this node.",
    ]


def row_of(taken: Takeover, groups: Sequence[str], *, dry_run: bool) -> Row:
    """For programs."""
    return {
        "node": taken.node_id,
        "taken_over": taken.taken_over,
        "dry_run": dry_run,
        "waits_for": taken.waits_for,
        "broker": taken.broker,
        "end_offset": taken.end_offset,
        "broker_end_offset": taken.broker_end_offset,
        "epoch": taken.epoch,
        "last_stored_ms": taken.last_stored_ms,
        "taken_ms": taken.taken_ms,
        "break_ms": taken.break_ms,
        "groups": list(groups),
    }

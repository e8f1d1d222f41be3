"""A switch of the master that an operator asks for: plan, consent, request, outcome.

    plan (a dry run at the node) ─▶ consent ─▶ request ─▶ new epoch ─▶ the master answers: done
                 │ refused                         │ given up, expired, another was elected
                 └─▶ exit code 5                   └─▶ exit code 5, the request is withdrawn

The request names the epoch it was planned for: if the master changes meanwhile it is refused.
"""

import asyncio
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.elections import ClusterChange, Coordination
from tandemlog.errors import NodeUnavailableError, OutcomeUnknownError, TandemlogError

from ..output.tables import Format, write_lines
from ..shared.exit_codes import REFUSED, UNKNOWN_OUTCOME, USAGE
from ..shared.failures import CommandError
from .elections_table import missing_text, source

LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for on the command line; `target` may be empty for a switchover."""

    change: ClusterChange
    target: str
    dry_run: bool
    yes: bool
    timeout_s: float
    form: Format


async def carry_out(
    admin: AsyncAdmin,
    wish: Wish,
    before: Coordination,
    describe: Callable[[str], Sequence[str]],
) -> None:
    """Everything from the plan on; `describe` gives the sentences of a plan with this target.
    Raises CommandError, and what the cluster refuses with."""
    request_id = secrets.token_hex(8)
    plan = await admin.change_cluster(
        wish.change, wish.target, request_id=request_id, epoch=before.epoch, dry_run=True
    )
    said = [*describe(plan.node_id), source(plan.revision, plan.answered_by)]
    if wish.dry_run:
        _say(wish, said, {"dry_run": True, "plan": " ".join(said[:-1])}, before, plan.node_id)
        return
    if wish.form is Format.TABLE:
        typer.echo("\n".join(said))
    ask_consent(wish.yes)
    began = time.monotonic()
    unsure = ""
    try:
        await admin.change_cluster(
            wish.change, wish.target, request_id=request_id, epoch=before.epoch
        )
    except (NodeUnavailableError, OutcomeUnknownError) as error:
        unsure = str(error)  # the record tells what became of it
    try:
        async with asyncio.timeout(wish.timeout_s):
            after = await _outcome(admin, before, request_id, unsure)
    except TimeoutError:
        why = await _waited_for(admin)
        await withdraw(admin, request_id)
        text = f"not done within {wish.timeout_s:g} s, the request is withdrawn{why}"
        raise CommandError(text, REFUSED) from None
    # Without a target the master chooses once more when it hands over: any other node will do.
    if after.leader_id == before.leader_id or wish.target not in ("", after.leader_id):
        await withdraw(admin, request_id)
        text = f"{after.leader_id} leads epoch {after.epoch} instead: {after.reason}"
        raise CommandError(text, REFUSED)
    seconds = round(time.monotonic() - began, 2)
    revision = after.coordinator.revision
    done = f"{after.leader_id} is the master, epoch {after.epoch}, after {seconds:g} s"
    lines = [f"{done} {source(revision, after.answered_by)}"]
    if after.unclean_epoch == after.epoch:
        lines.append(f"Epoch {after.epoch} is unclean: {missing_text(after)} (tandemlog history).")
    result = {
        "master": after.leader_id,
        "epoch": after.epoch,
        "seconds": seconds,
        "reason": after.reason,
        "answered_by": after.answered_by,
        "revision": revision,
    }
    _say(wish, lines, result, before, plan.node_id)


def ask_consent(yes: bool) -> None:
    """Raises CommandError without it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("there is no terminal to ask on: repeat it with --yes", USAGE)
    if not typer.confirm("Do it?", err=True):
        raise CommandError("nothing was done", REFUSED)


def _say(
    wish: Wish, lines: Sequence[str], row: dict[str, object], before: Coordination, target: str
) -> None:
    if wish.form is Format.TABLE:
        typer.echo("\n".join(lines))
        return
    fixed = {
        "action": wish.change.name.lower(),
        "target": target,
        "before": before.leader_id,
        "epoch": before.epoch,
        "answered_by": before.answered_by,
        "revision": before.coordinator.revision,
    }
    write_lines([{**fixed, **row}])


async def _outcome(
    admin: AsyncAdmin, before: Coordination, request_id: str, unsure: str
) -> Coordination:
    """The cluster once there is a newer epoch whose master answers. `unsure`: why it is unknown
    whether the request has arrived, empty if it has. Raises CommandError."""
    while True:
        state = await admin.coordination()
        if state.epoch > before.epoch:
            if (await admin.cluster()).master_id == state.leader_id:
                return state
        elif state.request is None or state.request.request_id != request_id:
            if unsure:
                raise CommandError(
                    f"it is unknown whether the request will take effect: {unsure}; look at "
                    "`tandemlog history` in some seconds",
                    UNKNOWN_OUTCOME,
                )
            raise CommandError(
                "the request has ended without an effect: it expired, or was withdrawn", REFUSED
            )
        elif state.request.outcome:
            await withdraw(admin, request_id)  # it was read: `topology` need not show it forever
            raise CommandError(state.request.outcome, REFUSED)
        await asyncio.sleep(LOOK_S)


async def _waited_for(admin: AsyncAdmin) -> str:
    with suppress(TandemlogError, TimeoutError):
        async with asyncio.timeout(2):
            state = await admin.coordination()
            if state.leader_present:
                return f"; {state.leader_id} leads epoch {state.epoch}, its lease holds"
    return ""


async def withdraw(admin: AsyncAdmin, request_id: str) -> None:
    """Without it the request would end with its lease."""
    with suppress(TandemlogError, TimeoutError):
        async with asyncio.timeout(2):
            await admin.change_cluster(ClusterChange.WITHDRAW, request_id=request_id)

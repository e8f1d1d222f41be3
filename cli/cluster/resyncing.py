"""A resync of one node that an operator asks for: plan, consent, request, outcome.

    plan (a dry run) ─▶ consent ─▶ request ─▶ the disk of the node is a new one ─▶ in sync
          │ refused                   │ given up, expired     │ not in time
          └─▶ exit code 5             └─▶ exit code 5         └─▶ exit code 6, it continues

The node's incarnation tells how far it is: it changes once, in the moment that the old log goes.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.elections import Changed, ClusterChange, Coordination
from tandemlog.errors import NodeUnavailableError, OutcomeUnknownError

from ..output.tables import Format, write_lines
from ..shared.exit_codes import REFUSED, UNKNOWN_OUTCOME
from ..shared.failures import CommandError
from .elections_table import reinit_lines, source
from .requests import LOOK_S, ask_consent, withdraw

GONE_LOOKS = 30
"""How often a request that has ended without a trace is looked for again."""


@dataclass(frozen=True, slots=True)
class Resync:
    """What was asked for on the command line."""

    node_id: str
    force: bool
    dry_run: bool
    yes: bool
    timeout_s: float
    form: Format


async def resync(admin: AsyncAdmin, wish: Resync) -> None:
    """Everything. Raises CommandError, and what the cluster refuses with."""
    before, topology = await admin.coordination(), await admin.cluster()
    request_id, node_id = secrets.token_hex(8), wish.node_id
    plan = await _ask(admin, wish, before, request_id, dry_run=True)
    said = [*reinit_lines(before, topology, node_id), source(plan.revision, plan.answered_by)]
    if wish.dry_run:
        _say(wish, said, before, {"dry_run": True, "plan": " ".join(said[:-1])})
        return
    if wish.form is Format.TABLE:
        typer.echo("\n".join(said))
    if node_id in topology.alarms and not wish.force:
        raise CommandError(
            f"{node_id} may hold acknowledged messages that the master lacks: to take them out of "
            "the cluster, repeat it with --force",
            REFUSED,
        )
    ask_consent(wish.yes)
    began = time.monotonic()
    unsure = ""
    try:
        await _ask(admin, wish, before, request_id, dry_run=False)
    except (NodeUnavailableError, OutcomeUnknownError) as error:
        unsure = f"; it is unknown whether the request arrived: {error}"
    after = await _in_time(admin, wish, before, request_id, unsure)
    seconds = round(time.monotonic() - began, 2)
    node = after.node(node_id)
    end = 0 if node is None else node.end_offset
    revision = after.coordinator.revision
    done = f"{node_id} is in sync again, its log ends at {end:,}, after {seconds:g} s"
    row = {
        "seconds": seconds,
        "end_offset": end,
        "answered_by": after.answered_by,
        "revision": revision,
    }
    _say(wish, [f"{done} {source(revision, after.answered_by)}"], before, row)


async def _in_time(
    admin: AsyncAdmin, wish: Resync, before: Coordination, request_id: str, unsure: str
) -> Coordination:
    node_id, old = wish.node_id, _disk(before, wish.node_id)
    try:
        async with asyncio.timeout(wish.timeout_s):
            await _begun(admin, node_id, old, request_id, unsure)
            return await _in_sync(admin, node_id)
    except TimeoutError:
        await withdraw(admin, request_id)
    state = await admin.coordination()
    if _disk(state, node_id) == old:
        node = state.node(node_id)
        why = (
            f": {node_id} is still in the in-sync set" if node is not None and node.in_sync else ""
        )
        text = f"not begun within {wish.timeout_s:g} s, the request is withdrawn{why}{unsure}"
        raise CommandError(text, REFUSED)
    raise CommandError(
        f"{node_id} has set its log aside and follows the master, but was not in sync within "
        f"{wish.timeout_s:g} s; it continues, `tandemlog topology` shows how far it is",
        UNKNOWN_OUTCOME,
    )


async def _begun(admin: AsyncAdmin, node_id: str, old: str, request_id: str, unsure: str) -> None:
    """Until the node has set its log aside. Raises CommandError if it has given up."""
    looks_left = GONE_LOOKS
    while True:
        state = await admin.coordination()
        if _disk(state, node_id) not in ("", old):
            return
        request = state.request
        if request is None or request.request_id != request_id:
            looks_left -= 1
            if not looks_left:
                raise CommandError(
                    "the request has ended without an effect: it expired, or was withdrawn"
                    f"{unsure}",
                    UNKNOWN_OUTCOME if unsure else REFUSED,
                )
        elif request.outcome:
            await withdraw(admin, request_id)
            raise CommandError(request.outcome, REFUSED)
        await asyncio.sleep(LOOK_S)


async def _in_sync(admin: AsyncAdmin, node_id: str) -> Coordination:
    while True:
        state = await admin.coordination()
        node = state.node(node_id)
        if node is not None and node.up and node.in_sync:
            return state
        await asyncio.sleep(LOOK_S)


async def _ask(
    admin: AsyncAdmin, wish: Resync, before: Coordination, request_id: str, *, dry_run: bool
) -> Changed:
    return await admin.change_cluster(
        ClusterChange.REINIT,
        wish.node_id,
        request_id=request_id,
        epoch=before.epoch,
        force=wish.force,
        dry_run=dry_run,
    )


def _disk(state: Coordination, node_id: str) -> str:
    """The incarnation of the node's disk, empty if it is not up."""
    node = state.node(node_id)
    return "" if node is None or not node.up else node.incarnation


def _say(wish: Resync, lines: Sequence[str], before: Coordination, row: dict[str, object]) -> None:
    if wish.form is Format.TABLE:
        typer.echo("\n".join(lines))
        return
    fixed = {
        "action": "reinit",
        "node": wish.node_id,
        "master": before.leader_id,
        "epoch": before.epoch,
        "answered_by": before.answered_by,
        "revision": before.coordinator.revision,
    }
    write_lines([{**fixed, **row}])

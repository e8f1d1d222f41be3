"""What an operator asks of an election: plan, consent, request, outcome.

    plan (a dry run) ─▶ consent ─▶ request ─▶ switchover, failover: a new epoch, its master answers
          │ refused                   │       reinit: the node has a new disk, then it is in sync
          └─▶ exit code 5             └─▶ exit code 5: given up, expired, or another was elected

The request names the epoch it was planned for: if the master changes meanwhile it is refused. What
is not done in time is withdrawn; a node that has set its log aside by then continues, and the exit
code is 6. Its incarnation shows that: it changes once, in the moment that the old log goes.
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
from tandemlog.cluster.elections import Changed, ClusterChange, Coordination
from tandemlog.errors import NodeUnavailableError, OutcomeUnknownError, TandemlogError

from ..output.tables import Format, Row, write_lines
from ..shared.exit_codes import REFUSED, UNKNOWN_OUTCOME, USAGE
from ..shared.failures import CommandError
from .elections_table import missing_text, reinit_lines, source

POLL_S = 0.1
MISSING_POLLS = 30
"""How often a reinit that has ended without a trace is looked for again."""
NO_EFFECT = "the request has ended without an effect: it expired, or was withdrawn"


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for on the command line; `target` may be empty for a switchover."""

    change: ClusterChange
    target: str
    dry_run: bool
    yes: bool
    timeout_s: float
    form: Format
    force: bool = False


class _Request:
    """One wish at the cluster, which was in the state `before`."""

    def __init__(self, admin: AsyncAdmin, wish: Wish, before: Coordination) -> None:
        self.admin = admin
        self.wish = wish
        self.before = before
        self.request_id = secrets.token_hex(8)

    async def send(self) -> str:
        """Why it is unknown whether the request has arrived; empty if it has."""
        try:
            await self.ask(dry_run=False)
        except (NodeUnavailableError, OutcomeUnknownError) as error:
            return str(error)  # the coordinator's record tells what became of it
        return ""

    async def ask(self, *, dry_run: bool) -> Changed:
        wish = self.wish
        return await self.admin.change_cluster(
            wish.change,
            wish.target,
            request_id=self.request_id,
            epoch=self.before.epoch,
            force=wish.force,
            dry_run=dry_run,
        )

    def is_in(self, state: Coordination) -> bool:
        return state.request is not None and state.request.request_id == self.request_id

    async def check_outcome(self, state: Coordination) -> None:
        """Raises CommandError if the request is in `state` as refused."""
        if self.is_in(state) and state.request is not None and state.request.outcome:
            await self.withdraw()  # it was read: `topology` need not show it forever
            raise CommandError(state.request.outcome, REFUSED)

    async def withdraw(self) -> None:
        """Without this the request would end with its lease."""
        with suppress(TandemlogError, TimeoutError):
            async with asyncio.timeout(2):
                await self.admin.change_cluster(ClusterChange.WITHDRAW, request_id=self.request_id)

    def show(self, lines: Sequence[str], names: Row, row: Row) -> None:
        """`lines` for people; `names` and `row` for programs."""
        if self.wish.form is Format.TABLE:
            typer.echo("\n".join(lines))
            return
        fixed = {
            "action": self.wish.change.name.lower(),
            **names,
            "epoch": self.before.epoch,
            "answered_by": self.before.answered_by,
            "revision": self.before.coordinator.revision,
        }
        write_lines([{**fixed, **row}])

    def show_plan(self, plan: Changed, lines: Sequence[str], names: Row) -> None:
        """In a dry run this is the result."""
        lines = [*lines, source(plan.revision, plan.answered_by)]
        if self.wish.dry_run or self.wish.form is Format.TABLE:
            self.show(lines, names, {"dry_run": True, "plan": " ".join(lines[:-1])})


def ask_consent(yes: bool) -> None:
    """Raises CommandError without it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("there is no terminal to ask on: repeat it with --yes", USAGE)
    if not typer.confirm("Do it?", err=True):
        raise CommandError("nothing was done", REFUSED)


# ---- another master


async def switch(
    admin: AsyncAdmin, wish: Wish, before: Coordination, describe: Callable[[str], Sequence[str]]
) -> None:
    """A switchover or a failover; `describe` gives the sentences of a plan with this target.
    Raises CommandError, and what the cluster refuses with."""
    request = _Request(admin, wish, before)
    plan = await request.ask(dry_run=True)
    names = {"target": plan.node_id, "before": before.leader_id}
    request.show_plan(plan, describe(plan.node_id), names)
    if wish.dry_run:
        return
    ask_consent(wish.yes)
    began = time.monotonic()
    unsure = await request.send()
    try:
        async with asyncio.timeout(wish.timeout_s):
            after = await _new_epoch(request, unsure)
    except TimeoutError:
        why = await _lease_text(admin)
        await request.withdraw()
        text = f"not done within {wish.timeout_s:g} s, the request is withdrawn{why}"
        raise CommandError(text, REFUSED) from None
    # Without a target the master chooses once more when it hands over: any other node will do.
    if after.leader_id == before.leader_id or wish.target not in ("", after.leader_id):
        await request.withdraw()
        text = f"{after.leader_id} leads epoch {after.epoch} instead: {after.reason}"
        raise CommandError(text, REFUSED)
    seconds = round(time.monotonic() - began, 2)
    revision = after.coordinator.revision
    done = f"{after.leader_id} is the master, epoch {after.epoch}, after {seconds:g} s"
    lines = [f"{done} {source(revision, after.answered_by)}"]
    if after.unclean_epoch == after.epoch:
        lines.append(f"Epoch {after.epoch} is unclean: {missing_text(after)} (tandemlog history).")
    row = {
        "master": after.leader_id,
        "epoch": after.epoch,
        "seconds": seconds,
        "reason": after.reason,
        "answered_by": after.answered_by,
        "revision": revision,
    }
    request.show(lines, names, row)


async def _new_epoch(request: _Request, unsure: str) -> Coordination:
    """The cluster once there is a newer epoch whose master answers. `unsure`: why it is unknown
    whether the request has arrived, empty if it has. Raises CommandError."""
    while True:
        state = await request.admin.coordination()
        if state.epoch > request.before.epoch:
            if (await request.admin.cluster()).master_id == state.leader_id:
                return state
        elif not request.is_in(state):
            if unsure:
                raise CommandError(
                    f"it is unknown whether the request will take effect: {unsure}; look at "
                    "`tandemlog history` in some seconds",
                    UNKNOWN_OUTCOME,
                )
            raise CommandError(NO_EFFECT, REFUSED)
        else:
            await request.check_outcome(state)
        await asyncio.sleep(POLL_S)


async def _lease_text(admin: AsyncAdmin) -> str:
    """What a switch may have waited for."""
    with suppress(TandemlogError, TimeoutError):
        async with asyncio.timeout(2):
            state = await admin.coordination()
            if state.leader_present:
                return f"; {state.leader_id} leads epoch {state.epoch}, its lease holds"
    return ""


# ---- a node whose log begins again


async def reinit(admin: AsyncAdmin, wish: Wish) -> None:
    """A resync of the node `wish.target`. Raises CommandError, and what the cluster refuses
    with."""
    before, topology = await admin.coordination(), await admin.cluster()
    request, node_id = _Request(admin, wish, before), wish.target
    plan = await request.ask(dry_run=True)
    names = {"node": node_id, "master": before.leader_id}
    request.show_plan(plan, reinit_lines(before, topology, node_id), names)
    if wish.dry_run:
        return
    if node_id in topology.alarms and not wish.force:
        raise CommandError(
            f"{node_id} may hold acknowledged messages that the master lacks: to take them out of "
            "the cluster, repeat it with --force",
            REFUSED,
        )
    ask_consent(wish.yes)
    began = time.monotonic()
    unsure = await request.send()
    if unsure:
        unsure = f"; it is unknown whether the request arrived: {unsure}"
    after = await _resynced(request, unsure)
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
    request.show([f"{done} {source(revision, after.answered_by)}"], names, row)


async def _resynced(request: _Request, unsure: str) -> Coordination:
    """The cluster once the node is in sync on a new disk. Raises CommandError if it is not in
    time."""
    admin, wish, node_id = request.admin, request.wish, request.wish.target
    old = _incarnation(request.before, node_id)
    try:
        async with asyncio.timeout(wish.timeout_s):
            await _until_set_aside(request, old, unsure)
            return await _in_sync(admin, node_id)
    except TimeoutError:
        await request.withdraw()
    state = await admin.coordination()
    if _incarnation(state, node_id) == old:
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


async def _until_set_aside(request: _Request, old: str, unsure: str) -> None:
    """Until the node has no longer the incarnation `old`. Raises CommandError if it gave up."""
    polls_left = MISSING_POLLS
    while True:
        state = await request.admin.coordination()
        if _incarnation(state, request.wish.target) not in ("", old):
            return
        if not request.is_in(state):
            polls_left -= 1
            if not polls_left:
                raise CommandError(f"{NO_EFFECT}{unsure}", UNKNOWN_OUTCOME if unsure else REFUSED)
        await request.check_outcome(state)
        await asyncio.sleep(POLL_S)


async def _in_sync(admin: AsyncAdmin, node_id: str) -> Coordination:
    while True:
        state = await admin.coordination()
        node = state.node(node_id)
        if node is not None and node.up and node.in_sync:
            return state
        await asyncio.sleep(POLL_S)


def _incarnation(state: Coordination, node_id: str) -> str:
    """Of the node's disk; empty if it is not up."""
    node = state.node(node_id)
    return "" if node is None or not node.up else node.incarnation

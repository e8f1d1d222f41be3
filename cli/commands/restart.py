"""`tandemlog restart`: which node is next, and when the cluster can do without one more.

    all well? ─▶ slave, slave, … ─▶ switchover ─▶ the old master ─▶ done
       ▲              │ restarted: it answers, its store was opened since, it is in sync again
       └──────────────┘

`obstacle`, `order` and `is_back` decide, the loop below asks and waits. How a process is
restarted is the operator's: a command for each node, or a hand.
"""

import asyncio
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.elections import ClusterChange
from tandemlog.cluster.topology import NodeInfo, Topology
from tandemlog.errors import TandemlogError

from ..cluster.election_requests import Wish, switch
from ..output.tables import Format
from ..shared.command import new_app
from ..shared.exit_codes import REFUSED, USAGE
from ..shared.failures import CommandError
from ..shared.online import run_admin
from ..shared.options import DEFAULT_ENDPOINT, DryRun, Endpoint, timeout_option

POLL_S = 0.5

app = new_app()


@dataclass(frozen=True, slots=True)
class Restarting:
    """`command` with {node} and {host}, empty: an operator does it; `timeout_s` for each node."""

    command: str
    timeout_s: float
    dry_run: bool


@app.command("restart")
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
    if not rolling:
        raise CommandError("give --rolling: nodes are restarted one after the other", USAGE)
    work = Restarting(command, timeout, dry_run)
    run_admin(endpoint, 30.0, lambda admin: restart_all(admin, work))


def obstacle(topology: Topology, needs: Sequence[str]) -> str:
    """Why no node may be taken down now; empty if one may. `needs` are the nodes that have to be
    there."""
    master = topology.master
    if master is None:
        return f"there is no master: {topology.asked_text()}"
    for node_id, text in topology.contradictions.items():
        return f"{node_id}: {text}"
    nodes = {node.node_id: node for node in topology.nodes}
    for node_id in needs:
        node = nodes.get(node_id)
        if node is None or not node.reachable:
            return f"{node_id} cannot be reached"
        if node.alarm:
            return f"alarm of {node_id}: {node.alarm}"
        if node_id != master.node_id and not node.in_sync:
            return f"{node_id} is {node.state}, {node.lag_bytes:,} bytes behind"
    return ""


def order(topology: Topology) -> list[NodeInfo]:
    """Slaves by their names, then the master."""
    nodes = [node for node in topology.nodes if not node.is_broker]
    return sorted(nodes, key=lambda node: (node.node_id == topology.master_id, node.node_id))


def is_back(node: NodeInfo, seconds: float) -> bool:
    """Whether a node was restarted within the last `seconds`."""
    return node.reachable and node.uptime_seconds < seconds


async def restart_all(admin: AsyncAdmin, work: Restarting) -> None:
    """Raises CommandError where it stops."""
    topology = await admin.cluster()
    nodes = order(topology)
    needs = [node.node_id for node in nodes]
    if why := obstacle(topology, needs):
        raise CommandError(f"nothing is restarted: {why}", REFUSED)
    if len(nodes) > 1 and topology.coordinator is None:
        raise CommandError(
            "nothing is restarted: the roles of this cluster are configured, so puts would stop "
            "while the master restarts; restart its slaves one by one, then see "
            "docs/replication.md to change the roles",
            REFUSED,
        )
    for node in nodes:
        master = topology.master_id == node.node_id and len(nodes) > 1
        if master and not work.dry_run:
            await _switch(admin, work)
        typer.echo(f"{node.node_id}{' (after a switchover)' if master else ''}: {_how(work, node)}")
        if work.dry_run:
            continue
        topology = await _restart(admin, work, node, needs)
    if not work.dry_run:
        typer.echo(f"all {len(nodes)} nodes are restarted, {topology.master_id} is the master")


async def _switch(admin: AsyncAdmin, work: Restarting) -> None:
    wish = Wish(ClusterChange.SWITCHOVER, "", False, True, work.timeout_s, Format.TABLE)
    before = await admin.coordination()
    await switch(admin, wish, before, lambda target: [f"{target} becomes the master first"])


async def _restart(
    admin: AsyncAdmin, work: Restarting, node: NodeInfo, needs: Sequence[str]
) -> Topology:
    began = time.monotonic()
    if work.command:
        command = _filled(work.command, node)
        ended = await asyncio.to_thread(  # its output is shown as it comes
            subprocess.run, command, shell=True, check=False, stdout=sys.stderr
        )
        if ended.returncode:
            raise CommandError(
                f"{node.node_id}: the command ended with {ended.returncode}; the nodes behind it "
                "were not restarted",
                REFUSED,
            )
    why = "it has not been restarted"
    back = False
    while time.monotonic() - began < work.timeout_s:
        await asyncio.sleep(POLL_S)
        try:
            topology = await admin.cluster()
        except TandemlogError as error:
            why = str(error)
            continue
        now = next((each for each in topology.nodes if each.node_id == node.node_id), None)
        back = back or (now is not None and is_back(now, time.monotonic() - began))
        if back and not (why := obstacle(topology, needs)):
            typer.echo(f"{node.node_id}: in sync again after {time.monotonic() - began:.0f} s")
            return topology
    raise CommandError(
        f"{node.node_id}: not back within {work.timeout_s:g} s: {why}; the nodes behind it were "
        "not restarted",
        REFUSED,
    )


def _how(work: Restarting, node: NodeInfo) -> str:
    if work.command:
        return _filled(work.command, node)
    return "restart it now" if not work.dry_run else "an operator restarts it"


def _filled(command: str, node: NodeInfo) -> str:
    host = node.endpoint.rpartition(":")[0].strip("[]")
    return command.replace("{node}", shlex.quote(node.node_id)).replace("{host}", shlex.quote(host))

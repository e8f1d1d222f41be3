"""The commands on a cluster that elects its master: what the coordinator has, and what changes it.

topology history            who leads, who is in sync and why not; the epochs so far
switchover failover reinit  with a plan and consent (cluster/election_requests.py)
pause resume member         done at once
"""

from itertools import chain
from typing import Annotated

import typer
from rich.console import Console

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.elections import ClusterChange, Coordination
from tandemlog.cluster.topology import Topology

from ..cluster.election_requests import Wish, reinit, switch
from ..cluster.elections_table import (
    HISTORY_COLUMNS,
    MEMBER_COLUMNS,
    TOPOLOGY_COLUMNS,
    TOPOLOGY_TITLES,
    cluster_row,
    failover_lines,
    history_columns,
    history_rows,
    history_texts,
    loss_lines,
    member_rows,
    source,
    switchover_text,
    topology_lines,
    topology_rows,
)
from ..output.tables import Format, fits, table_of, write_lines, write_table, write_texts
from ..shared.command import new_app
from ..shared.exit_codes import REFUSED, USAGE
from ..shared.failures import CommandError
from ..shared.online import ClusterOptions, run_admin
from ..shared.options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    DryRun,
    Endpoint,
    FormatOption,
    Timeout,
    Yes,
    now_ms,
    timeout_option,
)

NOT_FORCED = (
    "a failover by force can lose acknowledged messages; it is for a cluster whose in-sync nodes "
    "are all lost. While the master lives, `tandemlog switchover` loses nothing, and when it "
    "dies, an in-sync node takes over by itself. To accept the loss, repeat it with --force; "
    "--dry-run shows how much that may be"
)

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Its node id.")]

app = new_app()
member = new_app("Show, remove and take back the nodes of a cluster that elects its master.")


@app.command("topology")
def topology_command(*, cluster: ClusterOptions) -> None:
    """Show who leads and who is in sync, as the coordinator has it now.

    For a cluster that elects its master. Below the table stands, for each node that is not in the
    in-sync set, the reason. With --format jsonl the last line describes the cluster.
    """

    async def both(admin: AsyncAdmin) -> tuple[Coordination, Topology]:
        return await admin.coordination(), await admin.cluster()

    state, topology = cluster.ask(both)
    rows = topology_rows(state, topology)
    if cluster.form is Format.JSONL:
        write_lines(chain(rows, [cluster_row(state)]))
        return
    write_table(rows, TOPOLOGY_COLUMNS, TOPOLOGY_TITLES)
    write_texts(topology_lines(state, rows))


@app.command("history")
def history_command(*, cluster: ClusterOptions) -> None:
    """Show the epochs of a cluster: who led, why it began, how long it lasted.

    An epoch marked UNCLEAN may have begun without acknowledged messages; how many is unknown until
    the master before is back with its disk. Times come from the
    clocks of the leaders. The coordinator keeps the last 200 epochs.
    """
    history = cluster.ask(lambda admin: admin.history())
    rows = history_rows(history, now_ms())
    if cluster.form is Format.JSONL:
        write_lines(rows)
        return
    rows = [history_texts(row) for row in rows]
    columns, console = history_columns(history), Console()
    notes = [source(history.revision, history.answered_by)]
    if console.is_terminal and not fits(table_of(rows, columns), console):
        columns, notes = HISTORY_COLUMNS, [*loss_lines(history), *notes]
    write_table(rows, columns)
    write_texts(notes)


@app.command("switchover")
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
        await switch(admin, wish, before, lambda target: [switchover_text(before, target)])

    run_admin(endpoint, timeout, work)


@app.command("failover")
def failover_command(
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="The new master.")],
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
        await switch(admin, wish, before, lambda target: failover_lines(before, topology, target))

    if not force and not dry_run:
        raise CommandError(NOT_FORCED, USAGE)
    run_admin(endpoint, timeout, work)


@app.command("reinit")
def reinit_command(
    node: NodeName,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Although fewer than min_in_sync nodes are in sync meanwhile, or the node may "
            "hold acknowledged messages that the master lacks.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: FormatOption = Format.TABLE,
    timeout: Annotated[
        float, timeout_option("How many seconds to wait until the node is in sync again.")
    ] = 600.0,
) -> None:
    """Have a node that follows set its log aside and be sent all of it again by the master.

    For a node that is refused, or whose log or queues are damaged. The in-sync set drops the node
    before its log goes, so the other nodes hold every acknowledged message. The old log stays
    beside the store (resync-…) until the node is in sync, and longer as set_aside_kept says.
    """
    wish = Wish(ClusterChange.REINIT, node, dry_run, yes, timeout, form, force)
    run_admin(endpoint, min(timeout, 30.0), lambda admin: reinit(admin, wish))


@app.command("pause")
def pause_command(*, cluster: ClusterOptions) -> None:
    """Pause failover, for work on the machines: no other node takes over by itself.

    A master that is restarted leads again. `switchover` and `failover --force` work meanwhile.
    """
    texts = (
        "failover is paused: if the master is lost, no other node takes over until `tandemlog "
        "resume`",
        "failover was paused already",
    )
    _change(cluster, ClusterChange.PAUSE, texts)


@app.command("resume")
def resume_command(*, cluster: ClusterOptions) -> None:
    """End a pause: when the master is lost, an in-sync node takes over by itself again."""
    _change(cluster, ClusterChange.RESUME, ("failover works again", "failover was not paused"))


@member.command("list")
def list_members(*, cluster: ClusterOptions) -> None:
    """Show every node that belongs to the cluster, and those that were removed."""
    state = cluster.ask(lambda admin: admin.coordination())
    rows = member_rows(state)
    if cluster.form is Format.JSONL:
        write_lines(rows)
        return
    write_table(rows, MEMBER_COLUMNS)
    typer.echo(source(state.coordinator.revision, state.answered_by))


@member.command("add")
def add_member(node: NodeName, *, cluster: ClusterOptions) -> None:
    """Take a removed node back.

    A new node needs no command: it joins by being started with the cluster's coordinator.
    """
    texts = (f"{node} belongs to the cluster again", f"{node} belongs to the cluster already")
    _change(cluster, ClusterChange.ADD_MEMBER, texts, node)


@member.command("remove")
def remove_member(
    node: NodeName,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    force: Annotated[bool, typer.Option("--force", help="Remove it although it is up.")] = False,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Remove a node from the cluster: it takes no role any more, also after a restart.

    The master cannot be removed: switch first. Nor, without --force, a node that is up. The
    in-sync set drops the node as soon as enough others are in sync.
    """
    texts = (f"{node} is removed from the cluster", f"{node} was removed already")
    cluster = ClusterOptions(endpoint, form, timeout)
    _change(cluster, ClusterChange.REMOVE_MEMBER, texts, node, force=force)


def _change(
    cluster: ClusterOptions,
    change: ClusterChange,
    texts: tuple[str, str],
    node_id: str = "",
    *,
    force: bool = False,
) -> None:
    """Do it and say what became of it; `texts`: it was changed, it was so already."""
    reply = cluster.ask(lambda admin: admin.change_cluster(change, node_id, force=force))
    if cluster.form is Format.TABLE:
        text = texts[0] if reply.changed else texts[1]
        typer.echo(f"{text} {source(reply.revision, reply.answered_by)}")
        return
    row = {
        "action": change.name.lower(),
        "node": node_id,
        "changed": reply.changed,
        "answered_by": reply.answered_by,
        "revision": reply.revision,
    }
    write_lines([row])


app.add_typer(member, name="member")

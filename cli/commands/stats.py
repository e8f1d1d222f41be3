"""`tandemlog stats`: what a cluster takes and gives now (cluster/traffic.py), as rows."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.errors import NodeUnavailableError

from ..cluster.traffic import Sample, rates, read_samples, readable, summed
from ..output.tables import Format, write_lines, write_table
from ..shared import connecting
from ..shared.command import new_app
from ..shared.completion import complete_topic
from ..shared.online import ClusterOptions

NODE_COLUMNS = (
    "node",
    "role",
    "in/s",
    "MB in/s",
    "out/s",
    "MB out/s",
    "puts_waiting",
    "long_polls",
)
TOPIC_COLUMNS = ("topic", "in/s", "MB in/s", "out/s", "MB out/s", "messages_in_total")

app = new_app()


@app.command("stats")
def stats_command(
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="Only this topic; may be repeated.", autocompletion=complete_topic
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            min=0.1,
            max=3_600,
            help="Time between the two looks at the counters.",
        ),
    ] = 1.0,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again after each interval, until Ctrl-C.")
    ] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show messages and bytes per second, in and out: of each node, and of each topic.

    The counters are those of /metrics (docs/monitoring.md), so the nodes need an HTTP port. Bytes
    are those of the log: bodies, properties and headers. With --format jsonl there is one object
    for each topic of each node, with the totals since the node started.
    """
    security = connecting.security()

    async def work(admin: AsyncAdmin) -> None:
        before: Sequence[Sample] = ()
        for turn in itertools.count():
            nodes = (await admin.cluster()).nodes
            reachable = [node for node in nodes if node.reachable]
            after = await read_samples(reachable, security, cluster.timeout)
            if all(each.fault for each in after):
                faults = "; ".join(f"{each.node_id}: {each.fault}" for each in after)
                raise NodeUnavailableError(f"no node's metrics can be read: {faults or 'no node'}")
            if turn:
                rows = [row for row in rates(before, after) if not topics or row["topic"] in topics]
                _show(rows, after, {node.node_id: node.role for node in nodes}, cluster.form)
                if not watch:
                    return
            before = after
            await asyncio.sleep(interval)

    cluster.ask(work)


def _show(
    rows: list[dict[str, Any]], samples: Sequence[Sample], roles: dict[str, str], form: Format
) -> None:
    if form is Format.JSONL:
        write_lines(rows)
        return
    by_node = {row["node"]: row for row in summed(rows, "node")}
    nodes = [
        {"node": each.node_id, "role": roles.get(each.node_id), **each.now}
        | readable(by_node.get(each.node_id, {}))
        for each in samples
        if not each.fault
    ]
    write_table(nodes, NODE_COLUMNS)
    typer.echo()
    write_table([row | readable(row) for row in summed(rows, "topic")], TOPIC_COLUMNS)
    for each in samples:
        if each.fault:
            typer.echo(f"{each.node_id}: its metrics cannot be read: {each.fault}", err=True)

"""`tandemlog stats`: what a cluster takes and gives now, by node and by topic."""

import asyncio
import itertools
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.errors import NodeUnavailableError

from ..cluster.metrics import Sample, rates, samples, summed
from ..output.tables import Format, write_lines, write_table
from ..shared import connecting
from ..shared.command import new_app
from ..shared.completion import complete_topic
from ..shared.exit_codes import epilog
from ..shared.failures import one_line_errors
from ..shared.options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    Endpoint,
    FormatOption,
    Timeout,
    check_endpoints,
    connection_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@app.command("stats", epilog=epilog())
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
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show messages and bytes per second, in and out: of each node, and of each topic.

    The counters are those of /metrics (docs/monitoring.md), so the nodes need an HTTP port. Bytes
    are those of the log: bodies, properties and headers. With --format jsonl there is one object
    for each topic of each node, with the totals since the node started.
    """
    with one_line_errors():
        asyncio.run(_stats(endpoint, timeout, frozenset(topics or ()), interval, form, watch))


async def _stats(
    endpoint: str,
    timeout_s: float,
    topics: frozenset[str],
    interval_s: float,
    form: Format,
    watch: bool,
) -> None:
    security = connecting.security()
    async with AsyncAdmin(
        check_endpoints(endpoint), connection=connection_options(timeout_s)
    ) as admin:
        before: Sequence[Sample] = ()
        for turn in itertools.count():
            nodes = (await admin.cluster()).nodes
            after = await samples([node for node in nodes if node.reachable], security, timeout_s)
            if all(each.fault for each in after):
                said = "; ".join(f"{each.node_id}: {each.fault}" for each in after)
                raise NodeUnavailableError(f"no node's metrics can be read: {said or 'no node'}")
            if turn:
                rows = [row for row in rates(before, after) if not topics or row["topic"] in topics]
                roles = {node.node_id: node.role for node in nodes}
                _show(rows, after, roles, form)
                if not watch:
                    return
            before = after
            await asyncio.sleep(interval_s)


def _show(
    rows: list[dict[str, Any]], found: "Sequence[Sample]", roles: dict[str, str], form: Format
) -> None:
    if form is Format.JSONL:
        write_lines(rows)
        return
    by_node = {row["node"]: row for row in summed(rows, "node")}
    nodes = [
        {"node": each.node_id, "role": roles.get(each.node_id), **each.now}
        | _short(by_node.get(each.node_id, {}))
        for each in found
        if not each.fault
    ]
    write_table(nodes, NODE_COLUMNS)
    typer.echo()
    write_table([row | _short(row) for row in summed(rows, "topic")], TOPIC_COLUMNS)
    for each in found:
        if each.fault:
            typer.echo(f"{each.node_id}: its metrics cannot be read: {each.fault}", err=True)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """The rates for people: bytes in MB."""
    return {
        "in/s": round(row.get("messages_in_per_second", 0), 1),
        "MB in/s": round(row.get("bytes_in_per_second", 0) / 1e6, 3),
        "out/s": round(row.get("messages_out_per_second", 0), 1),
        "MB out/s": round(row.get("bytes_out_per_second", 0) / 1e6, 3),
    }

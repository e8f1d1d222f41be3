"""`tandemlog scrub`: how far the nodes are that read their logs again, and a round now."""

from typing import Any

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.scrub_status import ScrubStatus

from ..output.tables import Format, write_rows
from ..shared.command import new_app
from ..shared.online import ClusterOptions, NodeOption, each_node

app = new_app("Show the scrub of nodes: what they read again, found damaged and mended.")

COLUMNS = (
    "node", "state", "done_percent", "rounds", "checked_bytes", "damaged_blocks", "mended_blocks",
    "rebuilt_queues", "open_blocks",
)  # fmt: skip
TITLES = {
    "done_percent": "done (%)",
    "checked_bytes": "checked (bytes)",
    "damaged_blocks": "damaged",
    "mended_blocks": "mended",
    "rebuilt_queues": "queues rebuilt",
    "open_blocks": "open",
}


@app.command("status")
def status(node: NodeOption = "", *, cluster: ClusterOptions) -> None:
    """Show how far each node is in reading its log again, and what could not be settled.

    Counts begin when the node starts. Open blocks are damaged without a whole copy anywhere, differ
    without a majority, or wait to be mended; each is named below the table. Exit code 1 if there is
    one, or if a scrub has stopped.
    """

    async def work(admin: AsyncAdmin) -> list[ScrubStatus]:
        return [await admin.scrub_status(each) for each in await each_node(admin, node)]

    _show(cluster.ask(work), cluster.form)


@app.command("now")
def now(node: NodeOption = "", *, cluster: ClusterOptions) -> None:
    """Begin a round through the log of every node, or of one, now; it continues by itself."""

    async def work(admin: AsyncAdmin) -> list[ScrubStatus]:
        return [await admin.begin_scrub(each) for each in await each_node(admin, node)]

    for each in cluster.ask(work):
        size = each.log_end - each.log_begin
        typer.echo(f"{each.node_id}: a round through {size} bytes begins", err=True)


def _show(found: list[ScrubStatus], form: Format) -> None:
    write_rows([_row(each) for each in found], form, COLUMNS, TITLES)
    if form is Format.TABLE:
        for each in found:
            for text in (each.fault, *(block.reason for block in each.open_blocks)):
                if text:
                    typer.echo(f"{each.node_id}: {text}", err=True)
    if any(each.fault or each.open_blocks for each in found):
        raise typer.Exit(1)


def _row(found: ScrubStatus) -> dict[str, Any]:
    size = found.log_end - found.log_begin
    under_way = bool(found.round_began_ms and not found.round_ended_ms)
    begun = found.round_began_ms > 0
    done = found.next_offset - found.log_begin if under_way else size
    if not found.on:
        state = "off"
    elif found.fault:
        state = "stopped"
    else:
        state = "under way" if under_way else "waiting" if found.rounds else "not begun"
    return {
        "node": found.node_id,
        "state": state,
        "done_percent": round(100 * min(max(done, 0), size) / size) if size and begun else 0,
        "rounds": found.rounds,
        "checked_bytes": found.checked_bytes,
        "damaged_blocks": found.damaged_blocks,
        "mended_blocks": found.mended_blocks,
        "rebuilt_queues": found.rebuilt_queues,
        "open_blocks": len(found.open_blocks),
    }

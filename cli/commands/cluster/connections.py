"""`tandemlog connections`: who is connected to the nodes."""

from typing import Any

from tandemlog.admin import AsyncAdmin

from ...cluster.chosen_nodes import NodeOption, each_node
from ...output.tables import Format, write_lines, write_table
from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.failures import one_line_errors
from ...shared.online import run_admin
from ...shared.options import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, Endpoint, FormatOption, Timeout

COLUMNS = ("node", "peer", "identity", "seconds", "calls", "streams", "long_polls", "methods")

app = new_app()


@app.command("connections", epilog=epilog())
def connections_command(
    node: NodeOption = "",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show who has calls in progress at the nodes: producers, consumers, slaves, this command.

    A producer has a stream `Append`, a consumer that waits a long poll `Pull`, a slave a stream
    `Replicate`. `seconds` is how long the oldest call of the connection has been in progress. An
    idle connection is not shown: gRPC does not tell of it.
    """

    async def work(admin: AsyncAdmin) -> list[dict[str, Any]]:
        return [
            {
                "node": each.node_id,
                "peer": each.peer,
                "identity": each.identity or None,
                "seconds": round(each.seconds, 1),
                "calls": each.calls,
                "streams": each.streams,
                "long_polls": each.long_polls,
                "methods": ", ".join(each.methods),
            }
            for node_id in await each_node(admin, node)
            for each in await admin.connections(node_id)
        ]

    with one_line_errors():
        rows = run_admin(endpoint, timeout, work)
        if form is Format.JSONL:
            write_lines(rows)
        else:
            write_table(rows, COLUMNS)

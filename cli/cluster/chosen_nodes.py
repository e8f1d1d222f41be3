"""Which nodes a command asks: one by its name, or every one that can be reached."""

from typing import Annotated

import typer

from tandemlog.admin import AsyncAdmin

NodeOption = Annotated[
    str,
    typer.Option("--node", metavar="NODE", help="Only this node; without it every one."),
]


async def each_node(admin: AsyncAdmin, node_id: str) -> list[str]:
    """The ids of the nodes to ask. Raises NoNodeError if none can be reached."""
    if node_id:
        return [node_id]
    nodes = (await admin.cluster()).nodes
    return [node.node_id for node in nodes if node.reachable and not node.is_broker]

"""`tandemlog member`: which nodes belong to a cluster."""

from typing import Annotated

import typer

from tandemlog.cluster.elections import ClusterChange

from ..cluster.changing import change_now
from ..cluster.elections_table import MEMBER_COLUMNS, member_rows, source
from ..output.tables import Format, write_lines, write_table
from ..shared.command import new_app
from ..shared.exit_codes import epilog
from ..shared.failures import one_line_errors
from ..shared.online import run_admin
from ..shared.options import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, Endpoint, FormatOption, Timeout

app = new_app("Show, remove and take back the nodes of a cluster that elects its master.")

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Its node id.", show_default=False)]


@app.command("list", epilog=epilog())
def list_members(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show every node that belongs to the cluster, and those that were removed."""
    with one_line_errors():
        state = run_admin(endpoint, timeout, lambda admin: admin.coordination())
        rows = member_rows(state)
        if form is Format.JSONL:
            write_lines(rows)
            return
        write_table(rows, MEMBER_COLUMNS)
        typer.echo(source(state.coordinator.revision, state.answered_by))


@app.command("add", epilog=epilog())
def add(
    node: NodeName,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Take a removed node back.

    A new node needs no command: it joins by being started with the cluster's coordinator.
    """
    texts = (f"{node} belongs to the cluster again", f"{node} belongs to the cluster already")
    with one_line_errors():
        change_now(endpoint, timeout, form, ClusterChange.ADD_MEMBER, texts, node)


@app.command("remove", epilog=epilog())
def remove(
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
    with one_line_errors():
        change_now(endpoint, timeout, form, ClusterChange.REMOVE_MEMBER, texts, node, force=force)

"""`tandemlog reinit`: a node that follows begins with an empty log again."""

from typing import Annotated

import typer

from ...cluster.resyncing import Resync, resync
from ...output.tables import Format
from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.failures import one_line_errors
from ...shared.online import run_admin
from ...shared.options import (
    DEFAULT_ENDPOINT,
    DryRun,
    Endpoint,
    FormatOption,
    Yes,
    timeout_option,
)

app = new_app()


@app.command("reinit", epilog=epilog())
def reinit_command(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its node id.", show_default=False)],
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
    wish = Resync(node, force, dry_run, yes, timeout, form)
    with one_line_errors():
        run_admin(endpoint, min(timeout, 30.0), lambda admin: resync(admin, wish))

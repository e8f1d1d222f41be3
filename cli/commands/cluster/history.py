"""`tandemlog history`: the epochs of a cluster."""

import typer
from rich.console import Console

from ...cluster.elections_table import (
    HISTORY_COLUMNS,
    history_columns,
    history_lines,
    history_rows,
    loss_lines,
    source,
)
from ...output.tables import Format, fits, table_of, write_lines, write_table
from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.failures import one_line_errors
from ...shared.online import run_admin
from ...shared.options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    Endpoint,
    FormatOption,
    Timeout,
    now_ms,
)

app = new_app()


@app.command("history", epilog=epilog())
def history_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the epochs of a cluster: who led, why it began, how long it lasted.

    An epoch marked UNCLEAN may have begun without acknowledged messages; how many is unknown until
    the master before is back with its disk. Times come from the
    clocks of the leaders. The coordinator keeps the last 200 epochs.
    """
    with one_line_errors():
        history = run_admin(endpoint, timeout, lambda admin: admin.history())
        if form is Format.JSONL:
            write_lines(history_lines(history, now_ms()))
            return
        rows, columns, console = (
            history_rows(history, now_ms()),
            history_columns(history),
            Console(),
        )
        notes = []
        if console.is_terminal and not fits(table_of(rows, columns), console):
            columns, notes = HISTORY_COLUMNS, loss_lines(history)
        write_table(rows, columns)
        for line in notes:
            typer.echo(line)
        typer.echo(source(history.revision, history.answered_by))

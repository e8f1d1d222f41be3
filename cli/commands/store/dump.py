"""`tandemlog dump`: what the files of a store say."""

from enum import StrEnum
from typing import Annotated

import typer

from tandemlog_server.storage.tools.dump import dump

from ...output.tables import Format, error_console, write_rows
from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.failures import one_line_errors
from ...shared.options import FormatOption, Store
from ...shared.store_options import StoreSizes, store_config, with_groups


class What(StrEnum):
    MESSAGES = "messages"
    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    EPOCHS = "epochs"


_COLUMNS = {
    What.MESSAGES: (
        "physical_offset",
        "size",
        "topic",
        "queue_id",
        "queue_offset",
        "tags",
        "keys",
        "store_timestamp",
        "msg_id",
    ),
}

app = new_app()


@app.command("dump", epilog=epilog())
@with_groups
def dump_command(
    store: Store,
    what: Annotated[What, typer.Option("--what", help="Which content to show.")] = What.MESSAGES,
    form: FormatOption = Format.TABLE,
    *,
    sizes: StoreSizes,
) -> None:
    """Show the content of a store's files without changing anything.

    Messages come in log order; --format jsonl shows every field, with the body as it is stored,
    base64-encoded. At the first bytes that are not a record, the command stops with a note on
    stderr and exit code 0. After a failed fsync it shows what the page cache holds, and prints a
    note on stderr.
    """
    config = store_config(store, sizes)
    with one_line_errors():
        rows = dump(config, what.value)
        write_rows(rows, form, _COLUMNS.get(what))
        console = error_console()
        for note in rows.notes:
            console.print(note, markup=False, soft_wrap=True)

"""`tandemlog rebuild`: make queues and index again from the log alone."""

import time
from typing import Annotated

import typer

from tandemlog.format.words import counted
from tandemlog_server.storage.tools.rebuild import rebuild

from ...output.offline import say_lines
from ...output.progress import byte_progress
from ...output.tables import Format, write_lines
from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.failures import one_line_errors
from ...shared.option_groups import StoreSizes, store_config, with_groups
from ...shared.options import FormatOption, Store
from .recover import recovery_row

app = new_app()


@app.command("rebuild", epilog=epilog())
@with_groups
def rebuild_command(
    store: Store,
    queues: Annotated[
        bool,
        typer.Option("--queues", help="Rebuild the consume queues. [default: queues and index]"),
    ] = False,
    index: Annotated[
        bool, typer.Option("--index", help="Rebuild the index. [default: queues and index]")
    ] = False,
    form: FormatOption = Format.TABLE,
    *,
    sizes: StoreSizes,
) -> None:
    """Rebuild the consume queues and the index of a store from its log.

    The old files are set aside first and deleted once the new ones are complete. Exit code 7 means
    that a process has the store open.
    """
    config = store_config(store, sizes)
    both = queues == index
    with one_line_errors(), byte_progress("rebuild") as progress:
        began = time.monotonic()
        report = rebuild(config, queues=both or queues, index=both or index, progress=progress)
        seconds = time.monotonic() - began
        if form is Format.JSONL:
            write_lines(
                [
                    {
                        "queues": report.queues,
                        "index": report.index,
                        "queue_files": report.queue_files,
                        "index_files": report.index_files,
                        "recovery": recovery_row(report.recovery, dry_run=False),
                        "seconds": round(seconds, 3),
                    }
                ]
            )
            return
        made = []
        made += [counted(report.queue_files, "queue file")] if report.queues else []
        made += [counted(report.index_files, "index file")] if report.index else []
        say_lines(
            [
                *report.recovery.lines(),
                f"{store}: rebuilt {' and '.join(made)} in {seconds:.3f} s",
            ]
        )

"""`tandemlog rebuild`: make queues and index again from the log alone.

    rebuild STORE              in place, by the store's own dispatch, under its lock
    rebuild STORE --out DIR    by tasks here or on Spark; the store is only read

Both write the same files, those that a broker would have written.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tandemlog.format.words import counted
from tandemlog.logs.job_errors import OnCorruption
from tandemlog_server.storage.tools.rebuild import rebuild

from ..output.offline import say_lines
from ..output.progress import byte_progress
from ..output.tables import write_lines
from ..shared.command import new_app
from ..shared.exit_codes import epilog
from ..shared.failures import one_line_errors
from ..shared.jobs import (
    NO_MASTER,
    Form,
    JobOptions,
    LogArgument,
    OnCorruptionOption,
    check_logs,
    shown_job,
)
from ..shared.store_options import StoreSizes, store_config, with_groups
from .store.recover import recovery_row

app = new_app()


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How queues and index are built elsewhere. In place, the store's own settings say it."""

    index_tags: Annotated[
        bool | None,
        typer.Option(
            "--index-tags/--no-index-tags",
            help="Index tags too, or not. [default: as the store's own index does, else yes]",
            show_default=False,
        ),
    ] = None
    delay_levels: Annotated[
        str | None,
        typer.Option(
            "--delay-levels",
            help="Delay levels of the store's broker. "
            "[default: found from its schedule queues, else RocketMQ's]",
            show_default=False,
        ),
    ] = None
    on_corruption: OnCorruptionOption = OnCorruption.FAIL


@app.command("rebuild", epilog=epilog())
@with_groups
def rebuild_command(
    store: LogArgument,
    queues: Annotated[
        bool,
        typer.Option("--queues", help="Rebuild the consume queues. [default: queues and index]"),
    ] = False,
    index: Annotated[
        bool, typer.Option("--index", help="Rebuild the index. [default: queues and index]")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write consumequeue/ and index/ below this folder, and change nothing in STORE.",
            show_default=False,
        ),
    ] = None,
    *,
    sizes: StoreSizes,
    build: BuildOptions,
    options: JobOptions,
) -> None:
    """Rebuild the consume queues and the index of a store from its log.

    The old files are set aside first and deleted once the new ones are complete. Exit code 7 means
    that a process has the store open. With --out, the store is only read, and may be a folder of
    log files or a running node; --spark, --target-mb, --index-tags, --delay-levels and
    --on-corruption are for that.
    """
    if out is not None:
        rebuild_below(store, out, sizes, build, options, queues=queues, index=index)
        return
    if options.spark != NO_MASTER or build != BuildOptions():
        raise typer.BadParameter(
            "--spark, --index-tags, --delay-levels and --on-corruption need --out DIR: in place, "
            "one process that holds the lock of the store rebuilds it"
        )
    _rebuild_in_place(Path(store), sizes, options.form, both=queues == index, queues=queues)


def rebuild_below(
    store: str,
    out: Path,
    sizes: StoreSizes,
    build: BuildOptions,
    options: JobOptions,
    *,
    queues: bool,
    index: bool,
) -> None:
    """Build them below `out`; neither of the two means both."""
    with shown_job("rebuild", options) as job:
        check_logs(store)
        chosen = job.module.RebuildOptions(
            queues=queues or not index,
            index=index or not queues,
            index_slots=sizes.index_slots,
            index_entries=sizes.index_entries,
            queue_file_size=sizes.queue_file_size,
            index_tags=build.index_tags,
            delay_levels=build.delay_levels,
            target_bytes=options.target_bytes,
            on_corruption=build.on_corruption,
        )
        job.run(job.module.rebuild, store, out, chosen)


def _rebuild_in_place(
    store: Path, sizes: StoreSizes, form: Form, *, both: bool, queues: bool
) -> None:
    config = store_config(store, sizes)
    with one_line_errors(), byte_progress("rebuild") as progress:
        began = time.monotonic()
        report = rebuild(config, queues=both or queues, index=both or not queues, progress=progress)
        seconds = time.monotonic() - began
        if form is not Form.TABLE:
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

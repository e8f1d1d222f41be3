"""The commands on the files of a store that no node has open: dump, recover, rebuild.

    dump                       show what the files say
    recover                    make the store consistent, as a node does when it opens it
    rebuild STORE              queues and index from the log, in place, under the store's lock
    rebuild STORE --out DIR    the same by tasks here or on Spark; the store is only read

Both ways to rebuild write the same files, those that a broker would have written.
"""

import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tandemlog.format.words import counted
from tandemlog.logs.job_errors import OnCorruption
from tandemlog_server.storage.recovery.recovery_report import RecoveryReport
from tandemlog_server.storage.tools.dump import dump
from tandemlog_server.storage.tools.rebuild import rebuild
from tandemlog_server.storage.tools.recover import plan, recover

from ..output.progress import byte_progress
from ..output.tables import Format, write_lines, write_note, write_rows, write_texts
from ..shared.command import new_app
from ..shared.jobs import (
    NO_MASTER,
    Form,
    JobOptions,
    LogArgument,
    OnCorruptionOption,
    check_logs,
    shown_job,
)
from ..shared.options import FormatOption, Store
from ..shared.store_options import StoreSizes, store_config

RECORD_COLUMNS = (
    "physical_offset", "size", "topic", "queue_id", "queue_offset", "tags", "keys",
    "store_timestamp", "msg_id",
)  # fmt: skip

app = new_app()


class What(StrEnum):
    MESSAGES = "messages"
    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    EPOCHS = "epochs"


@app.command("dump")
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
    rows = dump(store_config(store, sizes), what.value)
    write_rows(rows, form, RECORD_COLUMNS if what is What.MESSAGES else None)
    for note in rows.notes:
        write_note(note)


@app.command("recover")
def recover_command(
    store: Store,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done without changing anything.")
    ] = False,
    form: FormatOption = Format.TABLE,
    *,
    sizes: StoreSizes,
) -> None:
    """Open a store, recover it, dispatch to the end of its log, and close it cleanly.

    The report says what was found, cut and rebuilt, and how long it took. Exit code 7 means that a
    process has the store open, or that its files do not fit together.
    """
    config = store_config(store, sizes)
    with byte_progress("recover") as progress:
        report = plan(config) if dry_run else recover(config, progress=progress)
        if form is Format.JSONL:
            write_lines([_recovery_row(report, dry_run=dry_run)])
            return
        last = "nothing was changed" if dry_run else f"recovered in {report.seconds:.3f} s"
        write_texts([*report.lines(), f"{store}: {last}"])


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How queues and index are built elsewhere. In place, the store's own settings say it."""

    index_tags: Annotated[
        bool | None,
        typer.Option(
            "--index-tags/--no-index-tags",
            help="Index tags too, or not. [default: as the store's own index does, else yes]",
        ),
    ] = None
    delay_levels: Annotated[
        str | None,
        typer.Option(
            "--delay-levels",
            help="Delay levels of the store's broker. "
            "[default: found from its schedule queues, else RocketMQ's]",
        ),
    ] = None
    on_corruption: OnCorruptionOption = OnCorruption.FAIL


@app.command("rebuild")
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
    log files or a running node; --spark, --target-mb, --index-tags, --delay-levels, --on-corruption
    and --report are for that.
    """
    if out is not None:
        rebuild_below(store, out, sizes, build, options, queues=queues, index=index)
        return
    if options.spark != NO_MASTER or build != BuildOptions() or options.report is not None:
        raise typer.BadParameter(
            "--spark, --index-tags, --delay-levels, --on-corruption and --report need --out DIR: "
            "in place, one process that holds the lock of the store rebuilds it"
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
    with byte_progress("rebuild") as progress:
        began = time.monotonic()
        report = rebuild(config, queues=both or queues, index=both or not queues, progress=progress)
        seconds = time.monotonic() - began
        if form is not Form.TABLE:
            row = {
                "queues": report.queues,
                "index": report.index,
                "queue_files": report.queue_files,
                "index_files": report.index_files,
                "recovery": _recovery_row(report.recovery, dry_run=False),
                "seconds": round(seconds, 3),
            }
            write_lines([row])
            return
        files = [counted(report.queue_files, "queue file")] if report.queues else []
        files += [counted(report.index_files, "index file")] if report.index else []
        write_texts(
            [*report.recovery.lines(), f"{store}: rebuilt {' and '.join(files)} in {seconds:.3f} s"]
        )


def _recovery_row(report: RecoveryReport, *, dry_run: bool) -> dict[str, Any]:
    """The findings as one object."""
    return {
        "dry_run": dry_run,
        "clean_stop": report.clean_stop,
        "foreign": report.foreign,
        "log_start": report.log_start,
        "log_end": report.log_end,
        "scanned_from": report.scanned_from,
        "scanned_records": report.scanned_records,
        "cut_bytes": report.cut_bytes,
        "cut_reason": report.cut_reason,
        "cut_saved": report.cut_saved,
        "damages": [str(damage) for damage in report.damages],
        "queues": report.queues,
        "queues_cut": report.queues_cut,
        "queues_rebuilt": report.queues_rebuilt,
        "index": report.index,
        "dispatched": report.dispatched,
        "confirmed": report.confirmed,
        "offsets_clamped": report.offsets_clamped,
        "doubt": report.doubt,
        "notes": report.notes,
        "seconds": round(report.seconds, 3),
    }

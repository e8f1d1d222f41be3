"""`tandemlog verify`: is a store whole, and is it the same as another one."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from storage.tools.verify import VerifyReport, verify

from .command import new_app
from .exit_codes import FAULT, epilog
from .failures import CommandError, one_line_errors
from .offline import say_lines
from .options import (
    DEFAULTS,
    FormatOption,
    IndexEntries,
    IndexSlots,
    QueueFileSize,
    Store,
    store_config,
)
from .output import Format, write_lines
from .progress import byte_progress

app = new_app()


@app.command("verify", epilog=epilog())
def verify_command(
    store: Store,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="STORE",
            help="Compare the two stores byte by byte, up to the confirm offset that they share.",
            show_default=False,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    index_slots: IndexSlots = DEFAULTS.index_slots,
    index_entries: IndexEntries = DEFAULTS.index_entries,
    queue_file_size: QueueFileSize = DEFAULTS.queue_file_size,
) -> None:
    """Check every record, every queue entry and every index entry against the log.

    Exit code 1 where something is wrong, with the first fault on stderr: file, offset, record.
    """
    config = store_config(store, index_slots, index_entries, queue_file_size)
    with one_line_errors():
        began = time.monotonic()
        with byte_progress("verify") as progress:
            report = verify(config, progress=progress)
        seconds = time.monotonic() - began
        if form is Format.JSONL:
            write_lines([_row(report, seconds)])
        else:
            say_lines(_lines(store, report, seconds))
        if report.faults:
            more = len(report.faults) - 1
            rest = f" (and {more} more)" if more else ""
            raise CommandError(f"{report.faults[0]}{rest}", FAULT)


def _lines(store: Path, report: VerifyReport, seconds: float) -> list[str]:
    held = "everything holds" if report.holds else f"{len(report.faults)} faults"
    return [
        *report.notes,
        *(f"fault: {fault}" for fault in report.faults),
        f"{store}: log {report.log_start}..{report.log_end}, {report.records} records, "
        f"{report.units} queue entries, {report.index_entries} entries in {report.index_files} "
        f"index files: {held} ({seconds:.3f} s)",
    ]


def _row(report: VerifyReport, seconds: float) -> dict[str, Any]:
    return {
        "holds": report.holds,
        "log_start": report.log_start,
        "log_end": report.log_end,
        "records": report.records,
        "queue_entries": report.units,
        "index_entries": report.index_entries,
        "index_files": report.index_files,
        "notes": report.notes,
        "faults": [
            {"file": fault.file, "position": fault.position, "reason": fault.reason}
            for fault in report.faults
        ],
        "seconds": round(seconds, 3),
    }

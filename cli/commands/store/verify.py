"""`tandemlog verify`: is a store whole, and is it the same as another one."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tandemlog.format.words import counted
from tandemlog_server.storage.tools.compare import CompareReport, compare
from tandemlog_server.storage.tools.verify import Fault, VerifyReport, verify

from ...output.offline import say_lines
from ...output.progress import byte_progress
from ...output.tables import Format, write_lines
from ...shared.command import new_app
from ...shared.exit_codes import FAULT, epilog
from ...shared.failures import CommandError, one_line_errors
from ...shared.option_groups import StoreSizes, store_config, with_groups
from ...shared.options import FormatOption, Store

app = new_app()


@app.command("verify", epilog=epilog())
@with_groups
def verify_command(
    store: Store,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="STORE",
            help="Also compare with this store, byte by byte, up to the confirm offset that both "
            "share.",
            show_default=False,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    *,
    sizes: StoreSizes,
) -> None:
    """Check every record, every queue entry and every index entry against the log.

    With --against, also compare it with another store: logs byte by byte, queues entry by entry,
    index entries as a set. Exit code 1 means that something is wrong or differs; the first finding
    is on stderr, with its file, offset and record. The exit code is also 1 if the two stores have
    nothing in common to compare, and after a failed fsync, because what is on the disk is unknown
    until `recover` has dropped the page cache.
    """
    config = store_config(store, sizes)
    other, nothing = None, False
    if against is not None:
        other = store_config(against, sizes)
    with one_line_errors():
        began = time.monotonic()
        with byte_progress("verify") as progress:
            report = verify(config, progress=progress)
        row, lines = _verify_row(report), _verify_lines(store, report)
        faults = list(report.faults)
        if other is not None and against is not None:
            with byte_progress("compare") as progress:
                compared = compare(config, other, progress=progress)
            row["against"] = _compare_row(compared)
            lines += _compare_lines(store, against, compared)
            faults += compared.faults
            nothing = not _compared(compared)
        row["seconds"] = round(time.monotonic() - began, 3)
        if form is Format.JSONL:
            write_lines([row])
        else:
            say_lines([*lines, f"took {row['seconds']} s"])
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            raise CommandError(f"{faults[0]}{more}", FAULT)
        if nothing:
            raise CommandError(
                f"nothing was compared: {store} and {against} share no confirmed part of the log",
                FAULT,
            )


def _compared(report: CompareReport) -> bool:
    """Whether the stores share a stretch of the log: where they do not, nothing says they agree."""
    return report.end > report.start


def _verify_lines(store: Path, report: VerifyReport) -> list[str]:
    held = "everything holds" if report.holds else counted(len(report.faults), "fault")
    return [
        *report.notes,
        *(f"fault: {fault}" for fault in report.faults),
        f"{store}: log {report.log_start}..{report.log_end}, {counted(report.records, 'record')}, "
        f"{counted(report.units, 'queue entry', 'queue entries')}, "
        f"{counted(report.index_entries, 'entry', 'entries')} in "
        f"{counted(report.index_files, 'index file')}: {held}",
    ]


def _compare_lines(store: Path, against: Path, report: CompareReport) -> list[str]:
    held = "they are the same" if report.holds else counted(len(report.faults), "difference")
    if not _compared(report):
        held = "nothing was compared"
    return [
        *report.notes,
        *(f"differs: {fault}" for fault in report.faults),
        f"{store} and {against}: log {report.start}..{report.end}, "
        f"{counted(report.units, 'queue entry', 'queue entries')}, "
        f"{counted(report.index_entries, 'index entry', 'index entries')}: {held}",
    ]


def _verify_row(report: VerifyReport) -> dict[str, Any]:
    return {
        "holds": report.holds,
        "log_start": report.log_start,
        "log_end": report.log_end,
        "records": report.records,
        "queue_entries": report.units,
        "index_entries": report.index_entries,
        "index_files": report.index_files,
        "notes": report.notes,
        "faults": _fault_rows(report.faults),
    }


def _compare_row(report: CompareReport) -> dict[str, Any]:
    return {
        "holds": report.holds and _compared(report),
        "start": report.start,
        "end": report.end,
        "queue_entries": report.units,
        "index_entries": report.index_entries,
        "notes": report.notes,
        "faults": _fault_rows(report.faults),
    }


def _fault_rows(faults: list[Fault]) -> list[dict[str, Any]]:
    return [
        {"file": fault.file, "position": fault.position, "reason": fault.reason} for fault in faults
    ]

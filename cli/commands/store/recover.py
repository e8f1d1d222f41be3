"""`tandemlog recover`: bring a store that no node has open to a consistent state."""

from typing import Annotated, Any

import typer

from tandemlog_server.storage.recovery.recovery_report import RecoveryReport
from tandemlog_server.storage.tools.recover import plan, recover

from ...output.offline import say_lines
from ...output.progress import byte_progress
from ...output.tables import Format, write_lines
from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.failures import one_line_errors
from ...shared.options import FormatOption, Store
from ...shared.store_options import StoreSizes, store_config, with_groups

app = new_app()


@app.command("recover", epilog=epilog())
@with_groups
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
    with one_line_errors(), byte_progress("recover") as progress:
        report = plan(config) if dry_run else recover(config, progress=progress)
        if form is Format.JSONL:
            write_lines([recovery_row(report, dry_run=dry_run)])
            return
        last = "nothing was changed" if dry_run else f"recovered in {report.seconds:.3f} s"
        say_lines([*report.lines(), f"{store}: {last}"])


def recovery_row(report: RecoveryReport, *, dry_run: bool) -> dict[str, Any]:
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

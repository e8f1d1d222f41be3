"""`--report FILE`: where the HTML report of a job goes.

The place is checked before the job runs, because that may take hours; the file is written at its
end, beside the old one, and renamed, so that a reader finds a whole report or none.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tandemlog_server.ha.protocol.versions import VERSION
from tandemlog_server.node.private_files import write_draft

from ..report.page import Report, page
from . import exit_codes
from .failures import CommandError

ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Also write the result with plots, as one HTML file. It replaces an older one.",
        show_default=False,
    ),
]


def check_place(path: Path) -> None:
    """Raises CommandError where no report can be written."""
    target = Path(os.path.realpath(path))
    folder = target.parent
    if target.exists() and not target.is_file():
        raise CommandError(f"--report {path}: that is not a file", exit_codes.USAGE)
    if not folder.is_dir():
        raise CommandError(f"--report {path}: there is no folder {folder}", exit_codes.USAGE)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandError(f"--report {path}: may not write in {folder}", exit_codes.USAGE)


def write_report(path: Path, report: Report) -> bool:
    """Put the report in place of an older one; False, after a line on stderr, if that fails: the
    result has been printed by then, and what it says counts more."""
    target = Path(os.path.realpath(path))
    try:
        write_draft(target, page(report).encode(), _mode(target)).replace(target)
    except OSError as error:
        sys.stdout.flush()
        reason = error.strerror or str(error)
        sys.stderr.write(f"tandemlog: {path}: the report was not written: {reason}\n")
        return False
    return True


def version() -> str:
    """Of this program, as a report names it."""
    return f"tandemlog {VERSION}"


def _mode(target: Path) -> int:
    """That of the older one, else what a new file gets."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask

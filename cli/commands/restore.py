"""`tandemlog restore`: a node's folder from an archive, or a store from a Parquet export.

Which of the two it is, the manifest that is found says.
"""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tandemlog.archive.archive_reader import ArchiveReader
from tandemlog.archive.open_store import open_object_store
from tandemlog.format.archive.object_name import MANIFESTS
from tandemlog.format.words import counted
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.restore_archive import RestoreReport, restore_archive

from ..output.progress import byte_progress
from ..output.tables import write_lines, write_note, write_texts
from ..shared.archived_log import Found, archived_log, parse_until
from ..shared.command import new_app
from ..shared.exit_codes import USAGE
from ..shared.failures import CommandError
from ..shared.jobs import NO_MASTER, Form, JobOptions
from ..shared.options import DEFAULTS
from ..shared.store_options import StoreSizes
from .export import restore_export

PARQUET_MANIFEST = "manifest.json"
"""Of an export; an archive has manifests in a folder."""

app = new_app()


@app.command("restore")
def restore_command(
    archive: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Archive or backup: a folder, s3://, gs:// or hdfs://; or the folder that "
            "`export` wrote.",
        ),
    ],
    directory: Annotated[
        Path,
        typer.Option("--dir", "--out", metavar="DIR", help="New folder, for the store of a node."),
    ],
    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="TIME|OFFSET",
            help="End at the last record that was stored by this time, or that ends at or before "
            "this log offset, a whole number. [default: all that is archived]",
        ),
    ] = "",
    writers: Annotated[
        int, typer.Option("--writers", min=1, max=64, help="Log files to write at a time.")
    ] = 2,
    log_only: Annotated[
        bool,
        typer.Option("--log-only", help="Of an export: only the log, without queues and index."),
    ] = False,
    *,
    sizes: StoreSizes,
    options: JobOptions,
) -> None:
    """Restore the store of a node from an archive, as of now or of an earlier moment.

    The folder opens as any other: start a node with it as store.directory. Until all of it is
    durable it is called DIR.restoring; a second run continues one that was interrupted.

    From an export, the log files come back byte for byte, then queues and index.
    """
    if (Path(archive) / PARQUET_MANIFEST).is_file():
        if until:
            raise typer.BadParameter("an export is restored whole", param_hint="--until")
        restore_export(Path(archive), directory, log_only=log_only, sizes=sizes, options=options)
        return
    _check_archive(archive)
    if log_only or options.spark != NO_MASTER:
        raise typer.BadParameter(f"{archive} is no export: --log-only and --spark are for those")
    config = StoreConfig(
        directory,
        queue_file_size=sizes.queue_file_size or DEFAULTS.queue_file_size,
        index_slots=sizes.index_slots,
        index_entries=sizes.index_entries,
    )
    began = time.monotonic()
    store = open_object_store(archive)
    try:
        reader = ArchiveReader.open(store)
        found = archived_log(reader, parse_until(until))
        with byte_progress("restore") as progress:
            report = restore_archive(found.log, config, writers=writers, progress=progress)
    finally:
        store.close()
    _show(reader, found, report, directory, options.form, time.monotonic() - began)


def _check_archive(archive: str) -> None:
    """Raises CommandError for a folder that is neither."""
    folder = Path(archive)
    if folder.is_dir() and not (folder / MANIFESTS).is_dir():
        raise CommandError(
            f"{archive} has no {PARQUET_MANIFEST} of an export, no {MANIFESTS} of an archive", USAGE
        )


def _show(
    reader: ArchiveReader,
    found: Found,
    report: RestoreReport,
    directory: Path,
    form: Form,
    seconds: float,
) -> None:
    point, restored = found.point, report.restored
    inside = [each for each in reader.manifest.covering(point.begin, point.end) if each.records]
    row: dict[str, Any] = {
        "directory": str(directory),
        "from": restored.source,
        "begin": point.begin,
        "end": point.end,
        "first_timestamp": min((each.first_ms for each in inside), default=-1),
        "last_timestamp": max((each.last_ms for each in inside), default=-1),
        "epoch": restored.newest_epoch,
        "records": restored.records,
        "topics": restored.topics,
        "topics_added": list(report.topics_added),
        "offsets_lowered": report.offsets_lowered,
        "notes": list(found.notes),
        "seconds": round(seconds, 3),
    }
    if form is not Form.TABLE:
        write_lines([row])
        return
    for note in row["notes"]:
        write_note(note)
    size = point.end - point.begin
    rate = f", {size / seconds / 1e6:.0f} MB/s" if seconds and not report.was_there else ""
    write_texts(
        [
            f"{directory}: the log from {point.begin:,} to {point.end:,}, "
            f"{counted(restored.records, 'record')} of {counted(restored.topics, 'topic')}"
            + (", restored by an earlier run" if report.was_there else f" in {seconds:.1f} s{rate}")
        ]
    )

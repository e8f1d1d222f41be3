"""`tandemlog backup`: a log in an archive, once; and what is in one.

backup SOURCE URL      what is new of a stored folder
backup list URL        the manifests
backup verify URL      all that the newest manifest names, read and checked
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tandemlog.archive.archive_checks import check_archive
from tandemlog.archive.archive_reader import ArchiveReader, load_manifest
from tandemlog.archive.backup import BackupReport, BackupSource, backup
from tandemlog.archive.errors import ObjectMissingError
from tandemlog.archive.object_store import ObjectStore, shown_url
from tandemlog.archive.open_store import open_object_store
from tandemlog.archive.prune import prune
from tandemlog.archive.restore_point import end_at
from tandemlog.format.archive.branches import newest_first
from tandemlog.format.archive.object_name import MANIFESTS
from tandemlog.format.words import counted
from tandemlog.logs.reading.log_source import NODE_PREFIX
from tandemlog_server.storage.tools.stored_log import StoredLog

from ..output.progress import byte_progress
from ..output.tables import Format, write_lines, write_note, write_rows, write_texts
from ..shared.archived_log import parse_until
from ..shared.command import new_app
from ..shared.exit_codes import FAULT
from ..shared.jobs import job_failures
from ..shared.node_log import NodeLog
from ..shared.options import FormatOption
from ..shared.store_options import StoreSizes, store_config
from ..shared.times import parse_time_ms

TAKE = "take"
_NODES = re.compile(r"[^/\s,]+:\d+(,[^/\s,]+:\d+)*")
"""HOST:PORT, several of one cluster with commas between them."""

UrlArgument = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="Where the backup is: a folder, s3://, gs:// or hdfs:// (fsspec)."
    ),
]


class BackupCommands(TyperGroup):
    """`backup SOURCE URL` is `backup take SOURCE URL`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = [TAKE, *args]
        return super().resolve_command(ctx, args)


app = new_app(
    "Put a log into a backup: `tandemlog backup SOURCE URL`.\n\nThat is `backup take SOURCE URL`. "
    "A second backup to the same URL moves what is new. `tandemlog restore URL` makes a node's "
    "folder of it."
)
app.info.cls = BackupCommands


@contextmanager
def _objects(url: str) -> Iterator[ObjectStore]:
    store = open_object_store(url)
    try:
        yield store
    finally:
        store.close()


@app.command(TAKE)
def take_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Folder of a store that no node has open, written by tandemlog or RocketMQ; or "
            "HOST:PORT of a running node, best of a slave.",
        ),
    ],
    url: UrlArgument,
    form: FormatOption = Format.TABLE,
    *,
    sizes: StoreSizes,
) -> None:
    """Put what is new of a log, and its tables, into a backup.

    A store is opened under its lock, and recovered as by `tandemlog recover`. Of a replica's log
    what was confirmed is taken, and so it is of a running node, whose puts and reads continue; that
    needs the right of an administrator, and to read every topic.
    """
    began = time.monotonic()
    with (
        _objects(url) as objects,
        _opened(source, sizes) as log,
        byte_progress("backup") as progress,
    ):
        report = backup(objects, log, now_ms=int(time.time() * 1000), progress=progress)
    _show(report, source, shown_url(url), form, time.monotonic() - began)


@contextmanager
def _opened(source: str, sizes: StoreSizes) -> Iterator[BackupSource]:
    """The log of a node, or of a folder."""
    folder = Path(source)
    if source.startswith(NODE_PREFIX) or (_NODES.fullmatch(source) and not folder.exists()):
        with job_failures(), NodeLog(source.removeprefix(NODE_PREFIX)) as node:
            yield node
        return
    with byte_progress("open") as progress:
        log = StoredLog(store_config(folder, sizes), progress=progress)
    try:
        yield log
    finally:
        log.close()


def _show(report: BackupReport, source: str, url: str, form: Format, seconds: float) -> None:
    manifest = report.manifest
    if form is Format.JSONL:
        write_lines(
            [
                {
                    "source": source,
                    "url": url,
                    "manifest": report.name.key,
                    "begin": manifest.begin,
                    "end": manifest.end,
                    "epoch": manifest.epoch,
                    "start": report.start,
                    "put_objects": report.put_objects,
                    "put_bytes": report.put_bytes,
                    "gap": report.gap,
                    "cut": report.cut,
                    "seconds": round(seconds, 3),
                }
            ]
        )
        return
    if report.gap is not None:
        begin, end = report.gap
        write_note(f"the log from {begin:,} to {end:,} was deleted before it was backed up")
    if report.cut is not None:
        write_note(f"the log was cut at {report.cut:,} since the last backup: it continues there")
    said = f"{url}: the log from {manifest.begin:,} to {manifest.end:,}"
    if not report.put_objects:
        write_texts([f"{said}, nothing is new"])
        return
    objects = counted(report.put_objects, "object")
    write_texts([f"{said}; {objects} with {report.put_bytes:,} bytes were put in {seconds:.1f} s"])


@app.command("list")
def list_command(url: UrlArgument, form: FormatOption = Format.TABLE) -> None:
    """Show the manifests of a backup or an archive, the one that counts first.

    Those of a lower epoch that end later have what was cut from the log at a failover.
    """
    with _objects(url) as objects:
        rows = list(_manifest_rows(objects))
    write_rows(rows, form)
    if not rows:
        write_note(f"{shown_url(url)} has no manifest")


def _manifest_rows(objects: ObjectStore) -> Iterator[dict[str, Any]]:
    for name in newest_first(each.key for each in objects.list(MANIFESTS)):
        try:
            manifest = load_manifest(objects, name)
        except ObjectMissingError:
            continue
        times = [each for each in manifest.segments if each.records]
        yield {
            "epoch": name.epoch,
            "begin": manifest.begin,
            "end": manifest.end,
            "revision": name.revision,
            "written_timestamp": manifest.written_ms,
            "first_timestamp": min((each.first_ms for each in times), default=-1),
            "last_timestamp": max((each.last_ms for each in times), default=-1),
            "bytes": manifest.size,
            "segments": len(manifest.segments),
            "states": len(manifest.states),
            "written_by": manifest.archiver,
        }


@app.command("prune")
def prune_command(
    url: UrlArgument,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="TIME|OFFSET",
            help="Keep what is needed to restore the log from here on: a time, or a log offset.",
        ),
    ],
    grace: Annotated[
        str,
        typer.Option(
            "--grace",
            metavar="AGE",
            help="Delete no object that is younger, such as -1h: readers may use it.",
        ),
    ] = "-1h",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done without changing anything.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete what a backup or an archive no longer needs.

    The log then begins with the last start of a commit log file at or before the moment whose
    prologue is there. What leaves the newest manifest now is deleted by a run after the grace time,
    and so is what was cut from the log at a failover.
    """
    now_ms = int(time.time() * 1000)
    grace_ms = now_ms - parse_time_ms(grace, now_ms)
    with _objects(url) as objects:
        keep_from = end_at(ArchiveReader.open(objects), parse_until(before))
        report = prune(objects, keep_from, now_ms=now_ms, grace_ms=grace_ms, dry_run=dry_run)
    row = {"url": shown_url(url), "dry_run": dry_run, **asdict(report)}
    if form is Format.JSONL:
        write_lines([row])
        return
    manifests = counted(report.manifests, "manifest")
    objects_text = counted(report.objects, "object")
    write_texts(
        [
            f"{row['url']}: the log begins at {report.begin:,}, before at {report.begun:,}; "
            f"{manifests} and {objects_text} of {report.size:,} bytes "
            + ("would be deleted" if dry_run else "are deleted")
        ]
    )


@app.command("verify")
def verify_command(url: UrlArgument, form: FormatOption = Format.TABLE) -> None:
    """Read all that the newest manifest of a backup or an archive names, and check it.

    Exit code 1 means that an object is missing or damaged.
    """
    with _objects(url) as objects:
        reader = ArchiveReader.open(objects)
        with byte_progress("verify") as progress:
            report = check_archive(reader, progress)
    row = {
        "url": shown_url(url),
        "begin": reader.manifest.begin,
        "end": reader.manifest.end,
        "objects": report.objects,
        "bytes": report.size,
        "records": report.records,
        "faults": list(report.faults),
    }
    if form is Format.JSONL:
        write_lines([row])
    else:
        write_texts(report.faults)
        write_texts(
            [
                f"{row['url']}: {counted(report.objects, 'object')}, {report.size:,} bytes of log, "
                f"{counted(report.records, 'record')}: "
                + ("FAULTS FOUND" if report.faults else "whole")
            ]
        )
    if report.faults:
        raise typer.Exit(FAULT)

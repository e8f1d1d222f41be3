"""`tandemlog export`: a log as Parquet; and a store from that."""

from pathlib import Path
from typing import Annotated

import typer

from tandemlog.logs.job_errors import OnCorruption

from ..shared.command import new_app
from ..shared.jobs import JobOptions, LogArgument, OnCorruptionOption, check_logs, loaded, shown_job
from ..shared.store_options import StoreSizes

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the result.")]

app = new_app()


@app.command("export")
def export_command(
    store: LogArgument,
    out: Out,
    messages: Annotated[
        bool, typer.Option("--messages", help="Write only the files for queries.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Write only the byte-exact copy.")] = False,
    compression: Annotated[
        str,
        typer.Option(
            "--compression", help="Compression of the Parquet files: snappy, zstd, lz4, gzip, none."
        ),
    ] = "snappy",
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    *,
    sizes: StoreSizes,
    options: JobOptions,
) -> None:
    """Write the log as Parquet: by topic and day for queries, and byte for byte for `restore`."""
    with shown_job("export", options) as job:
        check_logs(store)
        chosen = job.module.ExportOptions(
            messages=messages or not raw,
            raw=raw or not messages,
            compression=compression,
            target_bytes=options.target_bytes,
            on_corruption=on_corruption,
            index_slots=sizes.index_slots,
            index_entries=sizes.index_entries,
        )
        job.run(job.module.export, store, out, chosen)


def restore_export(
    archive: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `export` wrote.")],
    out: Annotated[Path, typer.Option("--out", metavar="STORE", help="Folder of the new store.")],
    log_only: Annotated[
        bool,
        typer.Option("--log-only", help="Restore only the log, without consume queues and index."),
    ] = False,
    *,
    sizes: StoreSizes,
    options: JobOptions,
) -> None:
    """Restore a store from an export: the log files byte for byte, then queues and index."""
    with shown_job("restore", options) as job:
        loaded("tandemlog.logs.tasks.parquet_folder").read_manifest(archive)
        derived = loaded("tandemlog.logs.jobs.rebuild").RebuildOptions(
            queues=not log_only,
            index=not log_only,
            index_slots=sizes.index_slots,
            index_entries=sizes.index_entries,
            queue_file_size=sizes.queue_file_size,
            target_bytes=options.target_bytes,
        )
        job.run(job.module.restore, archive, out, derived)

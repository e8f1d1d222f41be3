"""`tandemlog export`: a log as Parquet."""

from pathlib import Path
from typing import Annotated

import typer

from tandemlog.logs.job_errors import OnCorruption

from ..shared.command import new_app
from ..shared.exit_codes import epilog
from ..shared.jobs import (
    JobOptions,
    LogArgument,
    OnCorruptionOption,
    check_logs,
    shown_job,
)
from ..shared.store_options import StoreSizes, with_groups

Out = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", help="Folder for the result.", show_default=False),
]

app = new_app()


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


app.command("export", epilog=epilog())(with_groups(export_command))

"""`tandemlog restore`: a store from what `tandemlog export` wrote."""

from pathlib import Path
from typing import Annotated

import typer

from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.jobs import JobOptions, loaded, shown_job
from ...shared.store_options import StoreSizes, with_groups

app = new_app()


def restore_command(
    archive: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder that `export` wrote.", show_default=False),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="STORE", help="Folder of the new store.", show_default=False),
    ],
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
        loaded("tandemlog.logs.tasks.archive").read_manifest(archive)
        derived = loaded("tandemlog.logs.jobs.rebuild").RebuildOptions(
            queues=not log_only,
            index=not log_only,
            index_slots=sizes.index_slots,
            index_entries=sizes.index_entries,
            queue_file_size=sizes.queue_file_size,
            target_bytes=options.target_bytes,
        )
        job.run(job.module.restore, archive, out, derived)


app.command("restore", epilog=epilog())(with_groups(restore_command))

"""`tandemlog pipeline …`: jobs of Spark over stores, and the old names of commands.

    stats, waiting, demo                      here
    rebuild audit compare export restore      hidden; _MOVED has the command that does it now

The old names keep their options, output and exit codes, since scripts call them; what they are now
is said on stderr once the job is done.
"""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tandemlog.logs.job_errors import OnCorruption

from ..shared.command import new_app, with_groups
from ..shared.exit_codes import FAULT
from ..shared.jobs import (
    Form,
    FormOption,
    JobOptions,
    LogArgument,
    OnCorruptionOption,
    check_logs,
    shown_job,
)
from ..shared.store_options import StoreSizes
from .export import Out, export_command, restore_export
from .store import BuildOptions, rebuild_below

Master = Annotated[
    str,
    typer.Option(
        "--master",
        envvar="TANDEMLOG_SPARK_MASTER",
        help="Spark master: local[N], spark://HOST:PORT or sc://HOST:PORT (Spark Connect); none "
        "runs the job in this process, without Spark.",
    ),
]

_MOVED = {
    "rebuild": "rebuild STORE --out DIR --spark MASTER",
    "audit": "verify STORE --spark MASTER",
    "compare": "verify STORE --against OTHER --exact --spark MASTER",
    "export": "export STORE --out DIR --spark MASTER",
    "restore": "restore DIR --out STORE --spark MASTER",
}


@dataclass(frozen=True, slots=True)
class PipelineOptions(JobOptions):
    """Those of the commands here, which run on Spark unless they are told not to."""

    spark: Master = "local[*]"


app = new_app("Jobs over stores that Spark runs: stats, waiting, demo.")


def _old_name(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Also call the command `tandemlog pipeline NAME`, with the options that it had there."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        grouped = with_groups(command, options=PipelineOptions)

        @app.command(name, hidden=True)
        @functools.wraps(grouped)
        def run(**given: Any) -> None:
            try:
                grouped(**given)
            except typer.Exit as ended:
                if ended.exit_code == FAULT:
                    _say_moved(name)
                raise
            _say_moved(name)

        return command

    return decorate


def _say_moved(name: str) -> None:
    sys.stderr.write(f"`tandemlog pipeline {name}` is now `tandemlog {_MOVED[name]}`\n")


_old_name("export")(export_command)
_old_name("restore")(restore_export)


@_old_name("rebuild")
def rebuild_command(
    store: LogArgument,
    out: Out,
    queues: Annotated[
        bool, typer.Option("--queues", help="Build only the consume queues.")
    ] = False,
    index: Annotated[bool, typer.Option("--index", help="Build only the index.")] = False,
    *,
    sizes: StoreSizes,
    build: BuildOptions,
    options: JobOptions,
) -> None:
    """Build consume queues and index below --out from the commit log alone."""
    rebuild_below(store, out, sizes, build, options, queues=queues, index=index)


@_old_name("audit")
def audit_command(
    store: LogArgument,
    verify_crc: Annotated[
        bool, typer.Option("--crc/--no-crc", help="Check the CRC of every body.")
    ] = True,
    *,
    sizes: StoreSizes,
    options: JobOptions,
) -> None:
    """Check the log: every record, its files, its end and the queue offsets.

    Exit code 1 means that something is wrong; each finding names file, offset and message. The
    sizes of queue and index files are accepted but not used.
    """
    with shown_job("audit", options) as job:
        check_logs(store)
        target = options.target_bytes
        job.run(job.module.audit, store, verify_crc=verify_crc, target_bytes=target)


@_old_name("compare")
def compare_command(
    store: LogArgument, other: LogArgument, *, sizes: StoreSizes, options: JobOptions
) -> None:
    """Compare two copies of a log: first the CRCs of blocks, then the records that differ.

    Exit code 1 means that they are not equal. The sizes of queue and index files are accepted but
    not used.
    """
    with shown_job("compare", options) as job:
        check_logs(store, other)
        job.run(job.module.compare, store, other, target_bytes=options.target_bytes)


@app.command("stats")
def stats_command(
    store: LogArgument,
    out: Out,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    *,
    sizes: StoreSizes,
    options: PipelineOptions,
) -> None:
    """Count messages, bytes and sizes per topic and hour; write stats.parquet and stats.png."""
    with shown_job("stats", options) as job:
        check_logs(store)
        job.run(
            job.module.stats,
            store,
            out,
            target_bytes=options.target_bytes,
            on_corruption=on_corruption,
        )


@app.command("waiting")
def waiting_command(
    store: LogArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for waiting.parquet, with a row for each record."),
    ] = None,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    *,
    sizes: StoreSizes,
    options: PipelineOptions,
) -> None:
    """List what waits in a log: messages that come later, half messages of open transactions.

    Late are messages that were due before the newest record was stored. The sizes of queue and
    index files are accepted but not used.
    """
    with shown_job("waiting", options) as job:
        check_logs(store)
        job.run(
            job.module.waiting,
            store,
            out,
            target_bytes=options.target_bytes,
            on_corruption=on_corruption,
        )


@app.command("demo")
def demo_command(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help="Empty folder for everything that the demo writes. "
            "[default: a new temporary folder]",
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option("--rows", min=100, help="Number of messages to write.")
    ] = 100_000,
    master: Master = "local[*]",
    form: FormOption = Form.TABLE,
) -> None:
    """Show everything once: a cluster, live topics, a stream, and every job on its nodes' files.

    The demo starts a master and a slave on free ports and stops them before the jobs read their
    files.
    """
    options = PipelineOptions(spark=master, form=form)
    with shown_job("demo", options, "tandemlog.spark.tour") as job:
        job.run(job.module.run, directory, rows=rows)

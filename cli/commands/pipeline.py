"""`tandemlog pipeline …`: the jobs of the data pipeline, run by Spark over stores on disk.

Spark, Arrow and Java come with the extra `spark`; without them the commands exist and print what to
install. So this module does not import them at the top; only _loaded does, when a command runs.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tandemlog.format.files.index_layout import DEFAULT_ENTRIES, DEFAULT_SLOTS
from tandemlog.logs import job_errors
from tandemlog.logs.job_errors import OnCorruption
from tandemlog.spark.spark_version import version_fault

from ..output.tables import cell_text, error_console, write_table
from ..shared import connecting, exit_codes
from ..shared.command import new_app
from ..shared.exit_codes import epilog
from ..shared.failures import fail, one_line_errors
from ..shared.option_groups import with_groups
from ..shared.options import IndexEntries, IndexSlots

NO_MASTER = "none"
NEEDS = "pip install 'tandemlog[spark]'"
_TARGET_MB = 128


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"


StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="Folder of a store or of its commit log, written by tandemlog or RocketMQ; or "
        "node:HOST:PORT for the log of a running node.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", help="Folder for the result.", show_default=False),
]
FormOption = Annotated[
    Form,
    typer.Option("--format", "-f", help="Output format: table for people, json for programs."),
]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        envvar="TANDEMLOG_SPARK_MASTER",
        help="Spark master: local[N], spark://HOST:PORT or sc://HOST:PORT (Spark Connect); none "
        "runs the job in this process, without Spark.",
    ),
]
TargetMb = Annotated[
    int,
    typer.Option("--target-mb", min=1, help="How much of the log one task handles, in MiB."),
]
QueueFileSize = Annotated[
    int | None,
    typer.Option(
        "--queue-file-size",
        min=20,
        help="Size of a consume queue file in bytes, used if the store has none. "
        "[default: RocketMQ's]",
        show_default=False,
    ),
]
OnCorruptionOption = Annotated[
    OnCorruption,
    typer.Option(
        "--on-corruption", help="What to do about bytes of the log that are not a record."
    ),
]


@dataclass(frozen=True, slots=True)
class JobSizes:
    """What the files of a foreign store cannot tell. Every job takes them, so that one set of
    options serves for all."""

    index_slots: IndexSlots = DEFAULT_SLOTS
    index_entries: IndexEntries = DEFAULT_ENTRIES
    queue_file_size: QueueFileSize = None


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where a job runs, in which pieces, and how its result is shown."""

    master: Master = "local[*]"
    target_mb: TargetMb = _TARGET_MB
    form: FormOption = Form.TABLE

    @property
    def target_bytes(self) -> int:
        return self.target_mb << 20


app = new_app("Run a Spark job over stores: rebuild, audit, compare, export, restore, stats, demo.")


@app.command("rebuild", epilog=epilog())
@with_groups
def rebuild_command(
    store: StoreArgument,
    out: Out,
    queues: Annotated[
        bool, typer.Option("--queues", help="Build only the consume queues.")
    ] = False,
    index: Annotated[bool, typer.Option("--index", help="Build only the index.")] = False,
    *,
    sizes: JobSizes,
    index_tags: Annotated[
        bool | None,
        typer.Option(
            "--index-tags/--no-index-tags",
            help="Index tags too, or not. [default: as the store's own index does, else yes]",
            show_default=False,
        ),
    ] = None,
    delay_levels: Annotated[
        str | None,
        typer.Option(
            "--delay-levels",
            help="Delay levels of the store's broker. "
            "[default: found from its schedule queues, else RocketMQ's]",
            show_default=False,
        ),
    ] = None,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    spark: SparkOptions,
) -> None:
    """Build consume queues and index below --out from the commit log alone."""
    with _job("rebuild", spark.master, spark.form) as job:
        job.check(store)
        options = job.module.RebuildOptions(
            queues=queues or not index,
            index=index or not queues,
            index_slots=sizes.index_slots,
            index_entries=sizes.index_entries,
            queue_file_size=sizes.queue_file_size,
            index_tags=index_tags,
            delay_levels=delay_levels,
            target_bytes=spark.target_bytes,
            on_corruption=on_corruption,
        )
        job.run(job.module.rebuild, store, out, options)


@app.command("audit", epilog=epilog())
@with_groups
def audit_command(
    store: StoreArgument,
    verify_crc: Annotated[
        bool, typer.Option("--crc/--no-crc", help="Check the CRC of every body.")
    ] = True,
    *,
    sizes: JobSizes,
    spark: SparkOptions,
) -> None:
    """Check the log: every record, its files, its end and the queue offsets.

    Exit code 1 means that something is wrong; each finding names file, offset and message. The
    sizes of queue and index files are accepted but not used.
    """
    with _job("audit", spark.master, spark.form) as job:
        job.check(store)
        job.run(job.module.audit, store, verify_crc=verify_crc, target_bytes=spark.target_bytes)


@app.command("compare", epilog=epilog())
@with_groups
def compare_command(
    store: StoreArgument,
    other: StoreArgument,
    *,
    sizes: JobSizes,
    spark: SparkOptions,
) -> None:
    """Compare two copies of a log: first the CRCs of blocks, then the records that differ.

    Exit code 1 means that they are not equal. The sizes of queue and index files are accepted but
    not used.
    """
    with _job("compare", spark.master, spark.form) as job:
        job.check(store, other)
        job.run(job.module.compare, store, other, target_bytes=spark.target_bytes)


@app.command("export", epilog=epilog())
@with_groups
def export_command(
    store: StoreArgument,
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
    sizes: JobSizes,
    spark: SparkOptions,
) -> None:
    """Write the log as Parquet: by topic and day for queries, and byte for byte for `restore`."""
    with _job("export", spark.master, spark.form) as job:
        job.check(store)
        options = job.module.ExportOptions(
            messages=messages or not raw,
            raw=raw or not messages,
            compression=compression,
            target_bytes=spark.target_bytes,
            on_corruption=on_corruption,
            index_slots=sizes.index_slots,
            index_entries=sizes.index_entries,
        )
        job.run(job.module.export, store, out, options)


@app.command("restore", epilog=epilog())
@with_groups
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
    sizes: JobSizes,
    spark: SparkOptions,
) -> None:
    """Restore a store from an export: the log files byte for byte, then queues and index."""
    with _job("restore", spark.master, spark.form) as job:
        _loaded("tandemlog.logs.tasks.archive").read_manifest(archive)
        options = _loaded("tandemlog.logs.jobs.rebuild").RebuildOptions(
            queues=not log_only,
            index=not log_only,
            index_slots=sizes.index_slots,
            index_entries=sizes.index_entries,
            queue_file_size=sizes.queue_file_size,
            target_bytes=spark.target_bytes,
        )
        job.run(job.module.restore, archive, out, options)


@app.command("stats", epilog=epilog())
@with_groups
def stats_command(
    store: StoreArgument,
    out: Out,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
    *,
    sizes: JobSizes,
    spark: SparkOptions,
) -> None:
    """Count messages, bytes and sizes per topic and hour; write stats.parquet and stats.png."""
    with _job("stats", spark.master, spark.form) as job:
        job.check(store)
        job.run(
            job.module.stats,
            store,
            out,
            target_bytes=spark.target_bytes,
            on_corruption=on_corruption,
        )


@app.command("demo", epilog=epilog())
def demo_command(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help="Empty folder for everything that the demo writes. "
            "[default: a new temporary folder]",
            show_default=False,
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
    with _job("demo", master, form, module="tandemlog.spark.tour") as job:
        job.run(job.module.run, directory, rows=rows)


class Job:
    """One run: the job's module, a Spark session once it is needed, and what is shown."""

    def __init__(self, name: str, master: str, form: Form, module: str) -> None:
        self.module = _loaded(module)
        self.result: Any = None
        self._name = name
        self._master = master
        self._form = form

    def run(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Call the job with a session and a progress bar; show what it answers."""
        with _progress(f"starting Spark for the job {self._name}") as progress:
            if self._master == NO_MASTER:
                alone = _loaded("tandemlog.logs.executors").InProcess()
                self.result = work(alone, *arguments, progress=progress, **named)
            else:
                spark = _loaded("tandemlog.spark.session").spark_session(
                    f"tandemlog {self._name}", self._master
                )
                try:
                    self.result = work(spark, *arguments, progress=progress, **named)
                finally:
                    spark.stop()
        _show(self.result, self._form)

    def check(self, *stores: str) -> None:
        """Raises PipelineError for a store that is none, before a JVM is started for it."""
        for store in stores:
            _loaded("tandemlog.logs.reading.source").open_store(store)


@contextmanager
def _job(name: str, master: str, form: Form, module: str = "") -> Iterator[Job]:
    """Around a command: what goes wrong becomes one line and an exit code; 1 for findings."""
    with one_line_errors():
        os.environ.update(connecting.variables())  # for node:HOST:PORT, in every process
        try:
            job = Job(name, master, form, module or f"tandemlog.logs.jobs.{name}")
            yield job
        except ModuleNotFoundError as missing:
            if (missing.name or "").split(".")[0] not in ("pyspark", "pyarrow", "py4j"):
                raise
            fault = version_fault() or f"{missing.name} is not installed"
            raise fail(f"{fault}: {NEEDS}", exit_codes.USAGE) from None
        except job_errors.PipelineError as error:
            raise fail(str(error), _exit_code(error)) from None
        except RuntimeError as error:
            if type(error).__name__ != "JavaMissingError":
                raise
            raise fail(str(error), exit_codes.USAGE) from None
    if job.result is not None and not job.result.holds:
        raise typer.Exit(exit_codes.FAULT)


def _exit_code(problem: job_errors.PipelineError) -> int:
    if isinstance(problem, job_errors.OptionError | job_errors.StoreMissingError):
        return exit_codes.USAGE
    if isinstance(problem, job_errors.FetchError):
        return exit_codes.UNREACHABLE
    if isinstance(problem, job_errors.TourError):
        return exit_codes.FAULT
    return exit_codes.STORE


def _loaded(name: str) -> Any:
    """The module, imported now."""
    return importlib.import_module(name)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr, if that is a terminal; it counts tasks."""
    console = error_console()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} tasks"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=1)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=max(total, 1))

        yield show


def _show(result: Any, form: Form) -> None:
    """The result on stdout."""
    if form is Form.JSON:
        sys.stdout.write(json.dumps(result.document(), ensure_ascii=False) + "\n")
        sys.stdout.flush()
        return
    console = error_console()
    if result.rows:
        write_table(result.rows)
    findings = [finding.row() for finding in result.findings]
    if findings:
        write_table(findings, ("kind", "file", "offset", "topic", "queue_id", "queue_offset"))
        for finding in result.findings:
            sys.stdout.write(f"{finding.file}: offset {finding.offset}: {finding.detail}\n")
    sys.stdout.flush()
    for note in result.notes:
        console.print(note, markup=False, soft_wrap=True)
    summary = ", ".join(
        f"{name} {cell_text(value)}"
        for name, value in result.summary.items()
        if name != "topics" and value is not None
    )
    console.print(f"{result.job}: {summary}", markup=False, soft_wrap=True)
    console.print("whole" if result.holds else "FAULTS FOUND", markup=False)

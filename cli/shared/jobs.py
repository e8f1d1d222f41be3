"""Runs a job over whole logs for a command: where it runs, what goes wrong, how its result looks.

    --spark MASTER    executors of Spark; without it the tasks run one after the other, here
    --report FILE     the result again, as a page with plots (cli/report)

The jobs (tandemlog.logs) need neither Spark nor Java. Some need Arrow, and Spark comes with an
extra: so nothing of them is imported before a command runs, and what is missing is said by name.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self, TypeVar

import typer
from rich.progress import TextColumn

from tandemlog.logs import job_errors
from tandemlog.logs.job_errors import OnCorruption
from tandemlog.spark.spark_version import version_fault

from ..output.progress import progress_bar
from ..output.tables import cell_text, write_note, write_table, write_texts
from ..report.page import Part, Report, Verdict, time_text
from . import connecting, exit_codes
from .command import call
from .failures import CommandError
from .report_file import ReportOption, check_place, version, write_report

Result = TypeVar("Result")
NO_MASTER = "none"
_NEEDS = {"pyarrow": "arrow"}
"""The extra that a package comes with; the others come with `spark`."""
TARGET_MB = 128


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    """One object, as `json`: what the other commands call it."""


LogArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="Folder of a store or of its commit log, written by tandemlog or RocketMQ; an archive "
        "or a backup, a folder or a URL; or node:HOST:PORT for the log of a running node.",
    ),
]
FormOption = Annotated[
    Form, typer.Option("--format", "-f", help="Output format: table for people, json for programs.")
]
SparkOption = Annotated[
    str,
    typer.Option(
        "--spark",
        metavar="MASTER",
        help="Run on this Spark master: local[N], spark://HOST:PORT or sc://HOST:PORT (Spark "
        "Connect). [default: in this process, without Spark]",
        show_default=False,
    ),
]
TargetMb = Annotated[
    int, typer.Option("--target-mb", min=1, help="How much of the log one task handles, in MiB.")
]
OnCorruptionOption = Annotated[
    OnCorruption,
    typer.Option(
        "--on-corruption", help="What to do about bytes of the log that are not a record."
    ),
]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Where a job runs, in which pieces, and how its result is shown."""

    spark: SparkOption = NO_MASTER
    target_mb: TargetMb = TARGET_MB
    form: FormOption = Form.TABLE
    report: ReportOption = None

    @property
    def target_bytes(self) -> int:
        return self.target_mb << 20


class Job:
    """One run of a command, and what is shown: jobs one after the other, in a session that begins
    with the first one and ends with the command. `module` has the job, where it is only one."""

    def __init__(self, name: str, options: JobOptions) -> None:
        self.options = options
        self.module: Any = None
        self.result: Any = None
        self._name = name
        self._spark: Any = None
        self._began = time.time(), time.monotonic()

    def __enter__(self) -> Self:
        if self.options.report is not None:
            check_place(self.options.report)
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark is not None:
            self._spark.stop()

    def run(self, work: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Call the job with an executor and a progress bar; returns its result."""
        alone = self.options.spark == NO_MASTER
        with _progress(self._name if alone else f"starting Spark for {self._name}") as progress:
            if alone:
                executor = loaded("tandemlog.logs.executors").InProcess()
            else:
                executor = self._spark = self._spark or loaded(
                    "tandemlog.spark.session"
                ).spark_session(f"tandemlog {self._name}", self.options.spark)
            self.result = result = work(executor, *arguments, progress=progress, **named)
        return result

    def written(self, title: str, verdict: Verdict, parts: Sequence[Part]) -> bool:
        """Write the report for --report; False if that failed, which is said then."""
        path = self.options.report
        if path is None:
            return True
        began, started = self._began
        spark, called = self.options.spark, call()
        facts = [
            ("Command", called.words),
            *called.arguments,
            ("Ran", "in one process" if spark == NO_MASTER else f"on Spark, {spark}"),
            ("Began", time_text(int(1000 * began))),
            ("Took", f"{time.monotonic() - started:.1f} s"),
            ("Version", version()),
        ]
        return write_report(path, Report(title, facts, verdict, list(parts)))


def check_logs(*stores: str) -> None:
    """Raises PipelineError for one without a log, before a JVM is started for it."""
    for store in stores:
        loaded("tandemlog.logs.reading.log_source").open_store(store)


@contextmanager
def job_failures() -> Iterator[None]:
    """Around a command that runs jobs: what goes wrong becomes one line and an exit code."""
    os.environ.update(connecting.variables())  # for node:HOST:PORT, in every process
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").split(".")[0]
        if package not in ("pyspark", "pyarrow", "py4j", "matplotlib"):
            raise
        fault = version_fault() or f"{missing.name} is not installed"
        needs = f"pip install 'tandemlog[{_NEEDS.get(package, 'spark')}]'"
        raise CommandError(f"{fault}: {needs}", exit_codes.USAGE) from None
    except job_errors.PipelineError as error:
        raise CommandError(str(error), _exit_code(error)) from None
    except RuntimeError as error:
        if type(error).__name__ != "JavaMissingError":
            raise
        raise CommandError(str(error), exit_codes.USAGE) from None


@contextmanager
def shown_job(name: str, options: JobOptions, module: str = "") -> Iterator[Job]:
    """Around a command that is one job: shows its result at the end; 1 for findings."""
    with job_failures():
        with Job(name, options) as job:
            job.module = loaded(module or f"tandemlog.logs.jobs.{name}")
            yield job
        _show(job.result, options.form)
        written = options.report is None or _is_reported(job)
    if not job.result.holds:
        raise typer.Exit(exit_codes.FAULT)
    if not written:
        raise typer.Exit(exit_codes.STORE)


def _is_reported(job: Job) -> bool:
    texts = loaded("tandemlog_server.cli.report.job_report")
    result = job.result
    return job.written(texts.title_of(result.job), texts.verdict_of(result), texts.parts_of(result))


def _exit_code(problem: job_errors.PipelineError) -> int:
    if isinstance(problem, job_errors.OptionError | job_errors.StoreMissingError):
        return exit_codes.USAGE
    if isinstance(problem, job_errors.FetchError):
        return exit_codes.UNREACHABLE
    if isinstance(problem, job_errors.TourError):
        return exit_codes.FAULT
    return exit_codes.STORE


def loaded(name: str) -> Any:
    """The module, imported now."""
    return importlib.import_module(name)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr, if that is a terminal; it counts tasks."""
    with progress_bar(TextColumn("{task.completed:.0f}/{task.total:.0f} tasks")) as bar:
        task = bar.add_task(title, total=1)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=max(total, 1))

        yield show


def _show(result: Any, form: Form) -> None:
    """The result on stdout."""
    if form is not Form.TABLE:
        sys.stdout.write(json.dumps(result.document(), ensure_ascii=False) + "\n")
        sys.stdout.flush()
        return
    if result.rows:
        write_table(result.rows)
    findings = [finding.row() for finding in result.findings]
    if findings:
        write_table(findings, ("kind", "file", "offset", "topic", "queue_id", "queue_offset"))
        write_texts(f"{each.file}: offset {each.offset}: {each.detail}" for each in result.findings)
    for note in result.notes:
        write_note(note)
    summary = ", ".join(
        f"{name} {cell_text(value)}"
        for name, value in result.summary.items()
        if name != "topics" and value is not None
    )
    write_note(f"{result.job}: {summary}")
    write_note("whole" if result.holds else "FAULTS FOUND")

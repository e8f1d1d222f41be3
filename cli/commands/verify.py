"""`tandemlog verify`: is a store whole, and is it the same as another one.

    store    storage/tools/verify.py    log, queues, index and small files against each other
    log      tandemlog/logs/jobs        any log, in tasks: which messages are lost, and what lies
                                        behind the end; alone for a node, log files, and on Spark

Of a store the first one reads everything. The second one then looks at the ends of the log, and at
all of it if the first one found fault with it or refused it, so that a whole log is read once. With
--against it is the same: storage/tools/compare_stores.py, then the job `compare` where the logs
differ.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tandemlog.format.files.names import parse_offset_file_name
from tandemlog.format.words import counted
from tandemlog.logs.audit.audit_span import Finding
from tandemlog.logs.job_errors import CorruptLogError, PipelineError
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.compare import compare as compare_logs
from tandemlog.logs.jobs.job_result import JobResult
from tandemlog.logs.reading.log_files import COMMIT_LOG
from tandemlog.logs.reading.log_source import (
    NODE_PREFIX,
    LocalLogSource,
    is_stored_archive,
    open_store,
)
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.tools.compare_stores import CompareReport, compare, confirmed_end
from tandemlog_server.storage.tools.faults import Fault, VerifyReport, cautions, fault_of
from tandemlog_server.storage.tools.verify import verify

from ..output.progress import byte_progress
from ..output.tables import write_lines, write_texts
from ..report.verify_report import Checked, parts_of, verdict_of
from ..shared.command import new_app
from ..shared.exit_codes import FAULT, STORE
from ..shared.failures import CommandError
from ..shared.jobs import NO_MASTER, Form, Job, JobOptions, LogArgument, check_logs, job_failures
from ..shared.store_options import StoreSizes, store_config

WHOLE_LOG: Final = (1 << 63) - 1
LOG_ALONE: Final = "only the log was checked, not queues, index and small files"

app = new_app()


@app.command("verify")
def verify_command(
    store: LogArgument,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="STORE",
            help="Also compare with this store, byte by byte, up to the confirm offset that both "
            "share.",
        ),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="With --against: a log that begins later, ends earlier or has records behind its "
            "end differs too.",
        ),
    ] = False,
    *,
    sizes: StoreSizes,
    options: JobOptions,
) -> None:
    """Check every record, every queue entry and every index entry against the log.

    The snapshots of producers, delays, leases and transactions are compared with what the log
    says up to their positions.

    With --against, also compare it with another store: logs byte by byte, queues entry by entry,
    index entries as a set. With --spark, and for a node, an archive or a folder of log files, only
    the log is checked and compared. Exit code 1 means that something is wrong or differs; the first
    finding is on stderr, with its file, offset and record. The exit code is also 1 if the two
    stores have nothing in common to compare, and after a failed fsync, because what is on the disk
    is unknown until `recover` has dropped the page cache. It is 7 for files that do not fit
    together; the findings then say what is lost.
    """
    if exact and against is None:
        raise typer.BadParameter("--exact needs --against STORE")
    with job_failures(), Job("verify", options) as job:
        mine = _config(store, sizes)
        other = _config(against, sizes) if against is not None else None
        began = time.monotonic()
        here = options.spark == NO_MASTER
        if mine is not None and here:
            checks = [_check_store(store, mine, job)]
        else:
            checks = [_check_log(store, mine, job)]
        if against is not None:
            pair = store, against
            if mine is not None and other is not None and here:
                checks.append(_compare_stores(pair, (mine, other), job, exact=exact))
            else:
                checks.append(_compare_only_logs(pair, (mine, other), job, exact=exact))
        row = checks[0].row()
        if against is not None:
            row["against"] = checks[1].row()
        row["seconds"] = round(time.monotonic() - began, 3)
        if options.form is Form.TABLE:
            lines = [line for check in checks for line in check.lines()]
            write_texts([*lines, f"took {row['seconds']} s"])
        else:
            write_lines([row])
        written = options.report is None or _is_reported(checks, job)
        for check in checks:
            if check.refused is not None:
                raise check.refused
        faults = [fault for check in checks for fault in check.faults]
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            raise CommandError(f"{faults[0]}{more}", FAULT)
        if against is not None and not checks[1].compared:
            raise CommandError(
                f"nothing was compared: {store} and {against} share no confirmed part of the log",
                FAULT,
            )
        if not written:
            raise typer.Exit(STORE)


def _is_reported(checks: "Sequence[_Check]", job: Job) -> bool:
    checked = [check.checked() for check in checks]
    title = "Comparison of two stores" if len(checked) > 1 else "Check of a store"
    return job.written(title, verdict_of(checked), parts_of(checked))


@dataclass
class _Check:
    """The answer to one question, about a store or about a pair. `sentence` says what was looked
    at; `refused`: the files do not fit together, and what was found says what is lost."""

    sentence: str
    figures: dict[str, Any]
    notes: list[str]
    faults: list[Fault]
    success: str = "everything holds"
    fault_words: tuple[str, str] = ("fault", "fault")
    """Before each fault, and what they are counted as."""
    compared: bool = True
    refused: StoreError | None = None
    of_log: dict[str, Any] = field(default_factory=lambda: {"findings": []})
    job: JobResult | None = None
    """What a report draws."""

    def add_log(self, result: JobResult) -> None:
        """Add what a job found in the log. Of two faults at the same place the job's says more:
        it names the message."""
        named = {(each.file, each.offset): each for each in result.findings if each.fault}
        faults = []
        for fault in self.faults:
            finding = named.pop((fault.file, fault.position), None)
            faults.append(fault if finding is None else _as_fault(finding))
        # what the log lost, before what follows from that
        self.faults = [*(_as_fault(each) for each in named.values()), *faults]
        self.notes += result.notes
        self.notes += [str(_as_fault(each)) for each in result.findings if not each.fault]
        self.of_log["findings"] = [each.row() for each in result.findings]
        self.job = result

    def checked(self) -> Checked:
        """As a report has it."""
        return Checked(
            self.outcome(),
            self.figures,
            self.notes,
            self.faults,
            self.of_log["findings"],
            refused="" if self.refused is None else str(self.refused),
            pair=self.fault_words[0] == "differs",
            compared=self.compared,
            result=self.job,
        )

    def row(self) -> dict[str, Any]:
        return {
            "holds": not self.faults and self.compared and self.refused is None,
            **self.figures,
            "notes": self.notes,
            "faults": [
                {"file": each.file, "position": each.position, "reason": each.reason}
                for each in self.faults
            ],
            **self.of_log,
        }

    def outcome(self) -> str:
        """What was looked at, and what came of it."""
        outcome = counted(len(self.faults), self.fault_words[1]) if self.faults else self.success
        return f"{self.sentence}: {outcome if self.compared else 'nothing was compared'}"

    def lines(self) -> list[str]:
        faults = [f"{self.fault_words[0]}: {fault}" for fault in self.faults]
        return [*self.notes, *faults, self.outcome()]


def _as_fault(finding: Finding) -> Fault:
    return Fault(finding.file, finding.offset, f"offset {finding.offset}: {finding.detail}")


def _config(store: str, sizes: StoreSizes) -> StoreConfig | None:
    """Settings for a store on disk; None where there is only a log."""
    return None if _is_log_alone(store) else store_config(Path(store), sizes)


def _is_log_alone(store: str) -> bool:
    """Whether there is only a log: a node's, that of an archive, or a folder of log files."""
    if store.startswith(NODE_PREFIX) or is_stored_archive(store):
        return True
    names = os.listdir(store) if Path(store).is_dir() else []
    return COMMIT_LOG not in names and any(
        parse_offset_file_name(each) is not None for each in names
    )


# ---- one store


def _check_store(store: str, config: StoreConfig, job: Job) -> _Check:
    """All files of a store on disk; then the log once more, as far as that can say more."""
    refused = None
    try:
        with byte_progress("verify") as progress:
            report = verify(config, progress=progress)
    except StoreError as error:
        if not _lacks_files(store):
            raise
        report, refused = VerifyReport(log_is_whole=False), error
    check = _Check(
        f"{store}: log {report.log_start}..{report.log_end}, {counted(report.records, 'record')}, "
        f"{counted(report.units, 'queue entry', 'queue entries')}, "
        f"{counted(report.index_entries, 'entry', 'entries')} in "
        f"{counted(report.index_files, 'index file')}{_folds_text(report)}",
        {
            "log_start": report.log_start,
            "log_end": report.log_end,
            "records": report.records,
            "queue_entries": report.units,
            "index_entries": report.index_entries,
            "index_files": report.index_files,
            "folds": report.folds,
        },
        report.notes,
        report.faults,
        refused=refused,
    )
    if not report.finished or not (config.directory / COMMIT_LOG).is_dir():
        return check
    try:
        ends = _audit(store, job, records=False) if report.log_is_whole else None
        agreed = ends is not None and ends.summary["end"] == report.log_end
        result = ends if ends is not None and agreed else _audit(store, job, records=True)
    except (OSError, PipelineError) as error:
        check.notes.append(f"it was not looked at what the log has lost: {error}")
        return check
    check.add_log(result)
    if refused is not None:
        check.sentence = f"{store}: {_log_sentence(result)}, {LOG_ALONE}"
        check.figures |= _log_figures(result)
    if job.options.report is not None and result is ends:
        check.job = _audit(store, job, records=True)  # what a report draws is in the records
    return check


def _folds_text(report: VerifyReport) -> str:
    names = ", ".join(sorted(report.folds))
    return f", {counted(len(report.folds), 'snapshot')} ({names})" if names else ""


def _check_log(store: str, config: StoreConfig | None, job: Job) -> _Check:
    """A log alone, in tasks; of a store also whether its log can be judged at all."""
    check_logs(store)
    doubts = cautions(config.directory, RealFileSystem()) if config is not None else []
    result = _audit(store, job, records=True)
    check = _Check(
        f"{store}: {_log_sentence(result)}",
        _log_figures(result),
        [LOG_ALONE],
        [fault_of(each) for each in doubts],
    )
    check.add_log(result)
    summary = result.summary
    check.of_log |= {"tail": summary["tail"], "topics": summary["topics"], "files": result.rows}
    return check


def _audit(store: str, job: Job, *, records: bool) -> JobResult:
    return job.run(audit, store, records=records, target_bytes=job.options.target_bytes)


def _log_sentence(result: JobResult) -> str:
    summary = result.summary
    return f"log {summary['start']}..{summary['end']}, {counted(summary['records'], 'record')}"


def _log_figures(result: JobResult) -> dict[str, Any]:
    summary = result.summary
    return {"log_start": summary["start"], "log_end": summary["end"], "records": summary["records"]}


def _lacks_files(*stores: str) -> bool:
    """Whether a log on disk lacks a file or its end, or has a file that is cut off."""
    for store in stores:
        source = open_store(store) if (Path(store) / COMMIT_LOG).is_dir() else None
        try:
            if isinstance(source, LocalLogSource):
                source.check_complete()
        except CorruptLogError:
            return True
    return False


# ---- two of them


def _compare_stores(
    stores: tuple[str, str], configs: tuple[StoreConfig, StoreConfig], job: Job, *, exact: bool
) -> _Check:
    """All files of two stores on disk; then the logs once more, as far as that can say more."""
    refused = None
    try:
        with byte_progress("compare") as progress:
            report = compare(*configs, progress=progress)
    except StoreError as error:
        if not _lacks_files(*stores):
            raise
        report, refused = CompareReport(log_differs=True, end=WHOLE_LOG), error
    check = _Check(
        f"{stores[0]} and {stores[1]}: log {report.start}..{report.end}, "
        f"{counted(report.units, 'queue entry', 'queue entries')}, "
        f"{counted(report.index_entries, 'index entry', 'index entries')}",
        {
            "start": report.start,
            "end": report.end,
            "queue_entries": report.units,
            "index_entries": report.index_entries,
        },
        report.notes,
        report.faults,
        "they are the same",
        ("differs", "difference"),
        # where they share no stretch of the log, nothing says that they agree
        compared=report.end > report.start,
        refused=refused,
    )
    if not (exact or report.log_differs):
        return check
    try:
        result = _compare_logs(stores, job, None if exact else report.end)
    except (OSError, PipelineError) as error:
        if exact:
            raise
        check.notes.append(f"it was not looked at which records differ: {error}")
        return check
    check.add_log(result)
    if refused is not None:
        check.sentence = _compared_sentence(stores, result)
        check.figures |= _compared_figures(result)
    return check


def _compare_only_logs(
    stores: tuple[str, str], configs: Sequence[StoreConfig | None], job: Job, *, exact: bool
) -> _Check:
    """Two logs, in tasks."""
    check_logs(*stores)
    result = _compare_logs(stores, job, None if exact else min(map(_confirmed_end, configs)))
    figures = _compared_figures(result)
    check = _Check(
        _compared_sentence(stores, result), figures, [], [], "they are the same",
        ("differs", "difference"), compared=figures["end"] > figures["start"],
    )  # fmt: skip
    check.add_log(result)
    return check


def _confirmed_end(config: StoreConfig | None) -> int:
    """Up to where replicas of it must be the same. Where no store says it, that is the whole log: a
    node sends no more, and of a store that is refused the comparison tells what is wrong."""
    if config is not None:
        with suppress(StoreError):
            return confirmed_end(config)
    return WHOLE_LOG


def _compare_logs(stores: tuple[str, str], job: Job, until: int | None) -> JobResult:
    return job.run(compare_logs, *stores, until=until, target_bytes=job.options.target_bytes)


def _compared_sentence(stores: tuple[str, str], result: JobResult) -> str:
    return f"{stores[0]} and {stores[1]}: log {result.summary['start']}..{result.summary['end']}"


def _compared_figures(result: JobResult) -> dict[str, Any]:
    return {"start": result.summary["start"], "end": result.summary["end"]}

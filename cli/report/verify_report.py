"""The report of `verify`: what was checked of a store, and of a pair of stores where it compares.

Each check is a sentence, its faults and what a job drew of the log. A fault of the log is also a
mark on the log; one of another file is in the table alone, since its position counts something
else there (queue offsets, entries).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tandemlog.format.files.names import parse_offset_file_name
from tandemlog.format.words import counted
from tandemlog.logs.jobs.job_result import Drawn, JobResult
from tandemlog.logs.reading.log_files import COMMIT_LOG
from tandemlog.logs.reading.queue_ends import CONSUME_QUEUE
from tandemlog.logs.tasks.store_settings import INDEX
from tandemlog_server.storage.tools.faults import Fault

from .job_report import findings_table, log_parts, places
from .page import Part, Table, Verdict
from .ways_out import of_difference, of_nothing_in_common, of_store


@dataclass(frozen=True, slots=True)
class Checked:
    """One check: of a store, or of a pair (`compared` is then whether anything was compared).
    `findings` are the rows of a job's findings."""

    sentence: str
    figures: dict[str, Any]
    notes: Sequence[str]
    faults: Sequence[Fault]
    findings: Sequence[dict[str, Any]]
    refused: str = ""
    """Why the files do not fit together."""
    pair: bool = False
    compared: bool = True
    result: JobResult | None = field(default=None)

    @property
    def holds(self) -> bool:
        return not self.faults and self.compared and not self.refused


def verdict_of(checks: Sequence[Checked]) -> Verdict:
    """Of all checks together; the first one that is not sound says what to do first."""
    sentence = "; ".join(check.sentence for check in checks)
    headlines = []
    ways: list[str] = []
    for check in checks:
        if check.holds:
            continue
        if check.refused:
            headlines.append("The files do not fit together")
        if check.pair and check.faults:
            headlines.append(f"Not the same: {counted(len(check.faults), 'difference')}")
            ways += of_difference()
        elif check.faults:
            headlines.append(f"Damaged: {counted(len(check.faults), 'fault')}")
        if not check.compared:
            headlines.append("Nothing was compared")
            ways += of_nothing_in_common()
        if not check.pair:
            ways += _ways_out(check)
    if headlines:
        return Verdict(False, "; ".join(headlines), sentence, tuple(dict.fromkeys(ways)))
    both = len(checks) > 1
    headline = "Sound, and the two are the same" if both else "Sound: everything holds"
    return Verdict(True, headline, sentence)


def _ways_out(check: Checked) -> tuple[str, ...]:
    kinds = {_kind_of(fault.file) for fault in check.faults}
    log = (
        COMMIT_LOG in kinds or bool(check.refused) or any(each["fault"] for each in check.findings)
    )
    return of_store(
        log=log,
        derived=bool(kinds & {CONSUME_QUEUE, INDEX}),
        others=bool(kinds - {COMMIT_LOG, CONSUME_QUEUE, INDEX}),
    )


def _kind_of(file: str) -> str:
    """Which part of a store a file belongs to: the name of the folder, or empty."""
    parts = Path(file).parts
    for name in (CONSUME_QUEUE, INDEX, COMMIT_LOG):
        if name in parts[:-1]:
            return name
    # a folder of log files may have any name
    return COMMIT_LOG if parse_offset_file_name(parts[-1] if parts else "") is not None else ""


def parts_of(checks: Sequence[Checked]) -> list[Part]:
    """Everything below the verdict."""
    parts: list[Part] = []
    for check in checks:
        parts += _parts_of(check)
    return parts


def _parts_of(check: Checked) -> list[Part]:
    drawn = check.result.drawn if check.result is not None else Drawn()
    marks = list(check.findings)
    known = {(each["file"], each["offset"]) for each in marks}
    marks += [
        {"file": fault.file, "offset": fault.position, "detail": fault.reason}
        for fault in check.faults
        if _kind_of(fault.file) == COMMIT_LOG and (fault.file, fault.position) not in known
    ]
    heading = "The comparison" if check.pair else "What was found"
    notes = [check.refused] if check.refused else []
    part = Part(heading, [*notes, *check.notes], places(drawn, marks))
    others = [
        {"file": each.file, "position": each.position, "reason": each.reason}
        for each in check.faults
        if (each.file, each.position) not in known
    ]
    if others:
        part.blocks.append(Table("Differences" if check.pair else "Faults", others))
    if check.findings:
        part.blocks.append(findings_table(check.findings))
    if check.figures:
        rows = [{"figure": name, "value": value} for name, value in check.figures.items()
                if value or value == 0]  # fmt: skip
        part.blocks.append(Table("What was compared" if check.pair else "What was checked", rows))
    if check.result is None:
        return [part]
    files = [Table("Files of the log", check.result.rows, (), "", frozenset({"first", "last"}))]
    details = Part("Details", [], list(files) if check.result.rows and not check.pair else [])
    return [part, *log_parts(check.result), details]

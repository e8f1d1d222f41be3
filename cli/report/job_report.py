"""The parts of a report for the result of a job: faults by place, topics, time, sizes, groups.

JobResult.findings, .notes      what was found, and where in the log
JobResult.summary, .rows        the figures and the table that the command prints
JobResult.drawn                 what is drawn of the log; a part without figures is left out
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.filesize import decimal

from tandemlog.format.words import counted
from tandemlog.logs.audit.log_figures import TimeCounts
from tandemlog.logs.jobs.job_result import Drawn, JobResult

from . import plots
from .page import Block, Figure, Part, Table, Verdict, time_text
from .ways_out import of_difference, of_log

Row = Mapping[str, Any]

_TITLES: Final = {
    "audit": "Check of a log",
    "compare": "Comparison of two logs",
    "stats": "What is in a log",
    "waiting": "What waits in a log",
    "rebuild": "Queues and index from a log",
    "export": "Export of a log",
    "restore": "Restored store",
}
_TABLES: Final = {
    "audit": "Files of the log",
    "compare": "The two copies",
    "stats": "Topics by hour: sizes in bytes",
    "waiting": "What waits, by topic",
    "rebuild": "Queues that were built",
    "export": "Messages by topic",
}
_FINDING: Final = (
    "kind", "file", "offset", "topic", "queue_id", "queue_offset", "fault", "detail",
)  # fmt: skip
_LOG_TIMES: Final = frozenset({"first", "last"})
"""Of the rows of an audit: milliseconds. Of a rebuild, `first` is a queue offset."""


def title_of(job: str) -> str:
    """The heading of the page."""
    return _TITLES.get(job, job)


def verdict_of(result: JobResult) -> Verdict:
    """Whether what the job looked at is sound, and the way out if not."""
    faults = sum(finding.fault for finding in result.findings)
    sentence = f"{result.job}: " + ", ".join(
        f"{name} {value}"
        for name, value in result.summary.items()
        if name != "topics" and value is not None
    )
    if result.job == "compare":
        headline = f"Not equal: {counted(faults, 'difference')}" if faults else "Equal"
        return Verdict(not faults, headline, sentence, of_difference() if faults else ())
    if faults:
        return Verdict(False, f"Damaged: {counted(faults, 'fault')}", sentence, of_log())
    return Verdict(True, "Sound: no fault was found", sentence)


def parts_of(result: JobResult) -> list[Part]:
    """Everything below the verdict."""
    findings = [finding.row() for finding in result.findings]
    found = Part("What was found", list(result.notes), places(result.drawn, findings))
    if findings:
        found.blocks.append(findings_table(findings))
    printed = Part("Details")
    if result.rows:
        of_audit = result.job == "audit"
        times = _LOG_TIMES if of_audit else frozenset[str]()
        largest = next((name for name in ("units", "records") if name in result.rows[0]), "")
        caption = _TABLES.get(result.job, result.job)
        printed.blocks.append(Table(caption, result.rows, (), largest, times))
        if result.job == "waiting":
            printed.blocks.append(_bars("What waits, by topic", result.rows, "records"))
    return [found, *log_parts(result), printed]


def findings_table(findings: Sequence[Row]) -> Table:
    """As the job's rows of findings have them."""
    return Table("Findings, by their place in the log", findings, _FINDING)


def places(drawn: Drawn, findings: Iterable[Row]) -> list[Block]:
    """The log as a band, with a mark for each fault. Nothing for a job that does not know where
    its files begin."""
    if not drawn.files:
        return []
    marks = [
        plots.Mark(each["offset"], str(each["detail"]))
        for each in findings
        if each.get("fault", True)
    ]
    title = "Faults by their place in the log"
    borders = [first for _, first, _ in drawn.files]
    caption = f"{title}: {counted(len(marks), 'fault')}, {counted(len(borders), 'file')}"
    return [Figure(caption, plots.strip(title, drawn.log, borders, marks))]


def log_parts(result: JobResult) -> list[Part]:
    """What is drawn of the log; without that of which the job knows nothing."""
    drawn = result.drawn
    parts = []
    if topics := result.summary.get("topics"):
        parts.append(_topics(topics, drawn.of_log.topic_bytes))
    for heading, title, times in (
        ("When messages were stored", "Messages by store time", drawn.of_log.times),
        ("When waiting messages are due", "Waiting messages by due time", drawn.due),
    ):
        if times.counts or times.undated:
            parts.append(_times(heading, title, times))
    if drawn.of_log.sizes:
        parts.append(_sizes(drawn.of_log.sizes))
    if drawn.groups:
        parts.append(_groups(drawn.groups))
    if drawn.queues:
        parts.append(Part("Queues", [], [Table("Queues in the log", drawn.queues, (), "bytes")]))
    return parts


def _topics(messages: Mapping[str, int], sizes: Mapping[str, int]) -> Part:
    rows: list[Row] = [
        {"topic": topic, "records": count} | ({"bytes": sizes[topic]} if topic in sizes else {})
        for topic, count in messages.items()
    ]
    blocks: list[Block] = [_bars("Messages by topic", rows, "records")]
    if sizes:
        blocks.append(_bars("Bytes by topic", rows, "bytes"))
    blocks.append(Table("Topics", rows, (), "bytes" if sizes else "records"))
    return Part("Topics", [], blocks)


def _bars(title: str, rows: Sequence[Row], column: str) -> Figure:
    """Bars of topics, by the sum of one column."""
    amounts: Counter[str] = Counter()
    for row in rows:
        amounts[str(row["topic"])] += row.get(column, 0)
    text = decimal if column == "bytes" else _grouped
    bars = [plots.Bar(topic, value, text(value)) for topic, value in amounts.items()]
    return Figure(title, plots.bars(title, bars, "topics"))


def _grouped(value: int) -> str:
    return f"{value:,}"


def _times(heading: str, title: str, times: TimeCounts) -> Part:
    part = Part(heading)
    if times.undated:
        part.notes.append(f"{counted(times.undated, 'message')} without a date are not drawn.")
    bins = times.bins()
    if bins:
        width = _width_text(times.width_s)
        named = [(f"{time_text(begin)}, {width}", count) for begin, count in bins]
        ends = time_text(bins[0][0]), time_text(bins[-1][0] + 1000 * times.width_s)
        plot = plots.histogram(title, named, ends, "messages")
        part.blocks.append(Figure(f"{title}: a bar is {width}", plot))
    return part


def _width_text(seconds: int) -> str:
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return counted(seconds // size, noun)
    return counted(seconds, "second")


def _sizes(sizes: Mapping[int, int]) -> Part:
    """A bar for each power of two, with the empty ones between."""
    first, last = min(sizes), max(sizes)
    bins = [
        (f"{decimal(1 << max(number - 1, 0))} or more", sizes.get(number, 0))
        for number in range(first, last + 1)
    ]
    ends = decimal(1 << max(first - 1, 0)), decimal(1 << last)
    title = "How large records are"
    plot = plots.histogram(title, bins, ends, "messages")
    return Part("Sizes", [], [Figure(f"{title}: each bar doubles the size", plot)])


def _groups(groups: Sequence[Row]) -> Part:
    bars = [
        plots.Bar(f"{row['group']}: {row['topic']}/{row['queue_id']}", row["lag"],
                  _grouped(row["lag"]))
        for row in groups
    ]  # fmt: skip
    title = "Lag by group and queue, in messages"
    by_group: Counter[str] = Counter()
    for row in groups:
        by_group[row["group"]] += row["lag"]
    whole = [plots.Bar(group, lag, _grouped(lag)) for group, lag in by_group.items()]
    return Part(
        "Consumer groups",
        ["Committed offsets as config/consumerOffset.json has them, beside the ends of the queues "
         "in the log: a running node or broker writes that file every few seconds."],
        [
            Figure("Lag by group, in messages", plots.bars("Lag by group", whole, "groups")),
            Figure(title, plots.bars(title, bars, "queues")),
            Table("Groups by queue", groups, (), "lag"),
        ],
    )  # fmt: skip

"""Audits one span of a log: every record, its faults, and the numbers of each queue.

    record    size, magic, inner lengths, its own offset, body CRC, property CRC where it has one
    queue     the queue offsets of its records are consecutive: 7 8 9, not 7 9, not 7 7

A span shows only its own part. jobs/audit.py compares neighbouring spans: whether the queues
continue from one to the next, and whether the next one begins where the last one ends.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandemlog.arrow.dates import is_date
from tandemlog.format.arrays.ragged import gather_rows
from tandemlog.format.columns.dispatch import in_own_queue
from tandemlog.format.columns.topics import topics_of
from tandemlog.format.constants import CRC32, CRC_PROPERTY_SIZE
from tandemlog.format.record.property_crc import verify_property_crc
from tandemlog.format.record.record import Record

from ..reading.damaged_record import lenient_record, record_text
from ..reading.log_bytes import LogBytes
from ..reading.log_files import LogFiles
from ..reading.log_spans import Span
from ..reading.queue_collector import QueueCollector
from ..reading.span_scan import DamagedPiece, Ending, Piece, SpanScan
from .log_figures import LogFigures

MAX_FINDINGS = 100
_CRC_NAME = np.frombuffer(f"{CRC32}\x01".encode(), np.uint8)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something at log offset `offset` (to `end`) of `file`; topic, queue and queue offset if they
    can still be read there. `fault` False: worth knowing, not wrong."""

    kind: str
    file: str
    offset: int
    end: int
    detail: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    fault: bool = True

    @classmethod
    def of_record(
        cls,
        kind: str,
        file: str,
        offset: int,
        end: int,
        detail: str,
        record: Record | None,
        *,
        fault: bool = True,
    ) -> "Finding":
        """A finding at a record, if that can be decoded."""
        if record is None:
            return cls(kind, file, offset, end, detail, fault=fault)
        place = record.topic, record.queue_id, record.queue_offset
        return cls(kind, file, offset, end, detail, *place, fault)

    def row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class QueuePart:
    """What a span has of one queue: queue offset and log offset of its first and last record."""

    topic: str
    queue_id: int
    count: int
    size: int
    first: int
    last: int
    first_at: int
    last_at: int


@dataclass(frozen=True, slots=True)
class QueueBreak:
    """In a queue, message `number` at log offset `at` follows message `before` at `before_at`;
    `begins_again`: that number is lower, and the next record continues from it."""

    topic: str
    queue_id: int
    before: int
    before_at: int
    number: int
    at: int
    begins_again: bool = False

    @property
    def is_gap(self) -> bool:
        return self.number > self.before + 1

    def missing_messages(self) -> str:
        """The messages between the two, in words."""
        last = self.number - 1
        numbers = f"{last}" if last == self.before + 1 else f"{self.before + 1}..{last}"
        return f"message {numbers} of {self.topic}/{self.queue_id}"

    def finding(self, file: str) -> Finding:
        """As a finding of its own, where nothing else explains it."""
        detail = f"message {self.number} of {self.topic}/{self.queue_id} follows {self.before}"
        deleted = not self.is_gap and (self.begins_again or self.number == 0)
        if self.is_gap:
            detail += f": {self.missing_messages()} is missing"
        elif deleted:
            detail += ": the topic, or files of its queue, were deleted on the broker, and the "
            detail += "queue began again"
        return Finding(
            kind="queue_gap" if self.is_gap else "queue_overlap",
            file=file,
            offset=self.at,
            end=self.at,
            detail=detail,
            topic=self.topic,
            queue_id=self.queue_id,
            queue_offset=self.number,
            fault=not deleted,
        )


@dataclass(slots=True)
class SpanAudit:
    """The audit of a span; `damages` counts all, `findings` and `breaks` are the first MAX_FINDINGS
    of each. `topics` counts all records, also those that are in no queue."""

    file: str
    span: Span
    first: int = -1
    end: int = 0
    ending: Ending = Ending.NOTHING
    records: int = 0
    size: int = 0
    min_timestamp: int = 0
    max_timestamp: int = 0
    damages: int = 0
    findings: list[Finding] = field(default_factory=list)
    breaks: list[QueueBreak] = field(default_factory=list)
    queues: list[QueuePart] = field(default_factory=list)
    topics: Counter[str] = field(default_factory=Counter)
    figures: LogFigures = field(default_factory=LogFigures)

    def add(self, finding: Finding) -> None:
        self.damages += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)

    def row(self) -> dict[str, Any]:
        """As a row of the view `audit`."""
        first = self.findings[0] if self.findings else None
        return {
            "file": self.file,
            "start": self.span.start,
            "end": self.span.end,
            "first_offset": self.first,
            "end_offset": self.end,
            "ending": self.ending.name.lower(),
            "records": self.records,
            "bytes": self.size,
            "min_store_timestamp": _time(self.min_timestamp) if self.records else None,
            "max_store_timestamp": _time(self.max_timestamp) if self.records else None,
            "damages": self.damages,
            "first_damage": first.offset if first else None,
            "reason": first.detail if first else None,
        }


def _time(milliseconds: int) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if is_date(milliseconds) else None


def audit_span(log: LogBytes, files: LogFiles, span: Span, *, check_crc: bool = True) -> SpanAudit:
    """Check every record of the span. Raises OSError, FetchError."""
    audit = SpanAudit(files.path_of(span.start), span)
    queues = QueueCollector()
    scan = SpanScan(log, span, check_crc=check_crc)
    for part in scan:
        if isinstance(part, DamagedPiece):
            audit.add(damage_finding(log, files, span, part))
        else:
            _add_piece(audit, queues, part, check_crc)
    audit.first, audit.end, audit.ending = scan.first, scan.end, scan.ending
    _add_queues(audit, queues)
    return audit


def damage_finding(log: LogBytes, files: LogFiles, span: Span, damage: DamagedPiece) -> Finding:
    """The damage, with the message that was there."""
    record = lenient_record(log, damage.start, span.file_end, damage.end)
    kind = {"body_crc": "crc", "physical_offset": "offset"}.get(damage.field, damage.field)
    file, detail = files.path_of(damage.start), f"{record_text(record)}: {damage.reason}"
    return Finding.of_record(kind, file, damage.start, damage.end, detail, record)


def _add_piece(audit: SpanAudit, queues: QueueCollector, piece: Piece, check_crc: bool) -> None:
    headers = piece.headers
    times = headers.store_timestamp
    low, high = int(times.min()), int(times.max())
    audit.min_timestamp = min(audit.min_timestamp, low) if audit.records else low
    audit.max_timestamp = max(audit.max_timestamp, high) if audit.records else high
    audit.records += piece.count
    audit.size += int(headers.sizes.sum())
    topics, topic_index = topics_of(piece.data, headers)
    audit.figures.add(topics, topic_index, headers.sizes, times)
    if check_crc:
        _check_property_crcs(audit, piece, topics, topic_index)
    for topic, count in zip(topics, np.bincount(topic_index).tolist(), strict=True):
        audit.topics[topic] += count
    in_queue = in_own_queue(headers.sys_flag).nonzero()[0]
    queues.add(
        topics,
        topic_index[in_queue],
        headers.queue_id[in_queue],
        headers.queue_offset[in_queue],
        headers.physical_offset[in_queue],
        headers.sizes[in_queue],
    )


def _check_property_crcs(
    audit: SpanAudit, piece: Piece, topics: list[str], topic_index: NDArray[np.int64]
) -> None:
    headers = piece.headers
    ends = headers.positions + headers.sizes
    names = gather_rows(piece.data, ends - CRC_PROPERTY_SIZE, len(_CRC_NAME))
    rows = (names == _CRC_NAME).all(axis=1).nonzero()[0]
    view = piece.data.data
    for row in rows.tolist():
        position, size = int(headers.positions[row]), int(headers.sizes[row])
        if verify_property_crc(view, position, size) is False:
            offset = piece.base + position
            topic, queue_id = topics[int(topic_index[row])], int(headers.queue_id[row])
            number = int(headers.queue_offset[row])
            audit.add(
                Finding(
                    kind="property_crc",
                    file=audit.file,
                    offset=offset,
                    end=offset + size,
                    detail=f"message {number} of {topic}/{queue_id}: "
                    "its property CRC is not that of its bytes",
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=number,
                )
            )


def _add_queues(audit: SpanAudit, queues: QueueCollector) -> None:
    collected = queues.collected()
    if not collected.queues:
        return
    bounds = collected.bounds
    numbers, offsets, sizes = (column[collected.order] for column in collected.columns)
    steps = np.diff(numbers) != 1
    steps[bounds[1:-1] - 1] = False
    for row in steps.nonzero()[0].tolist()[:MAX_FINDINGS]:
        topic, queue_id = collected.queues[int(np.searchsorted(bounds[1:], row, side="right"))]
        audit.breaks.append(
            QueueBreak(
                topic, queue_id, int(numbers[row]), int(offsets[row]),
                int(numbers[row + 1]), int(offsets[row + 1]),
            )
        )  # fmt: skip
    audit.damages += int(np.count_nonzero(steps))
    totals = np.add.reduceat(sizes, bounds[:-1])
    for number, (topic, queue_id) in enumerate(collected.queues):
        begin, last = int(bounds[number]), int(bounds[number + 1]) - 1
        audit.queues.append(
            QueuePart(
                topic, queue_id, last - begin + 1, int(totals[number]),
                int(numbers[begin]), int(numbers[last]), int(offsets[begin]), int(offsets[last]),
            )
        )  # fmt: skip

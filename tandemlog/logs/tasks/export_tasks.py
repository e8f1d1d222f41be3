"""The executors' part of an export: spans of the log become Parquet files, written by Arrow.

    messages   batches ──collected to some 48 MiB──▶ rows by topic and day ──▶ a row group each
    raw        batches ──────────────────────────▶ rows in log order, and the bytes between them

Arrow's writer in the worker costs half as much as Spark's own, since no row goes to the JVM.
"""

import uuid
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tandemlog.arrow.dates import DAY_MS, EPOCH, NO_DATE, counted_in
from tandemlog.arrow.plain_arrays import numbers, strings
from tandemlog.arrow.text_columns import sliced
from tandemlog.format.arrays.grouping import distinct_pairs, stable_order
from tandemlog.format.arrays.ragged import offsets_of
from tandemlog.format.columns.topics import topics_of

from ..audit.audit_span import Finding, damage_finding
from ..reading.log_bytes import LogBytes, read
from ..reading.log_source import LogSource
from ..reading.log_spans import Span
from ..reading.span_scan import DamagedPiece, Ending, Piece, SpanScan
from ..view_columns import MESSAGES as MESSAGE_COLUMNS
from ..view_columns import view_batch
from .parquet_folder import (
    MESSAGES,
    NO_DAY,
    OTHER,
    RAW,
    RAW_SCHEMA,
    RECORD,
    RawPart,
    parquet_writer,
    partition_folder,
)
from .parquet_merge import ParquetPart

_WINDOW_BYTES = 4 << 20
_HELD_BYTES = 48 << 20
_OTHER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ExportTask:
    """`spans` hold records; `rest` are parts of the files outside the log's records."""

    source: LogSource
    spans: tuple[Span, ...]
    rest: tuple[Span, ...]
    out: str
    messages: bool
    raw: bool
    compression: str


@dataclass(slots=True)
class ExportOutcome:
    """What a task wrote."""

    records: int = 0
    topics: Counter[str] = field(default_factory=Counter)
    raw: RawPart | None = None
    files: int = 0
    findings: list[Finding] = field(default_factory=list)
    parts: list[ParquetPart] = field(default_factory=list)


def export_part(task: ExportTask) -> ExportOutcome:
    """Write the files of one task. Raises OSError, FetchError."""
    outcome = ExportOutcome()
    first = task.spans[0].start if task.spans else task.rest[0].start
    name = f"part-{first:020d}.parquet"
    directory = Path(task.out) / MESSAGES
    messages = _Messages(directory, name, task.compression) if task.messages else None
    raw = _Raw(Path(task.out) / RAW / name, task.compression) if task.raw else None
    try:
        with closing(task.source.connect()) as log:
            for span in task.spans:
                _export_span(log, task, span, outcome, messages, raw)
            if raw is not None:
                for span in task.rest:
                    raw.others(log, span.start, span.end)
        if messages is not None:
            outcome.parts = messages.close()
            outcome.files += len(outcome.parts)
        if raw is not None:
            outcome.raw = raw.close(name)
            outcome.files += 1
    finally:
        for form in (messages, raw):
            if form is not None:
                form.drop()
    return outcome


def _export_span(
    log: LogBytes,
    task: ExportTask,
    span: Span,
    outcome: ExportOutcome,
    messages: "_Messages | None",
    raw: "_Raw | None",
) -> None:
    behind = span.start
    scan = SpanScan(log, span, check_crc=True, window_bytes=_WINDOW_BYTES)
    for part in scan:
        if isinstance(part, DamagedPiece):
            outcome.findings.append(damage_finding(log, task.source.files, span, part))
            if raw is not None:
                raw.others(log, part.start, part.end)
            continue
        outcome.records += part.count
        topics, number = topics_of(part.data, part.headers)
        for topic, count in zip(topics, np.bincount(number).tolist(), strict=True):
            outcome.topics[topic] += count
        if messages is not None:
            messages.add(part, topics, number)
        if raw is not None:
            raw.records(part)
        behind = part.end
    if raw is not None and scan.ending is Ending.BLANK:
        raw.others(log, behind, span.file_end)


class _Messages:
    """One task's files of the messages form: a writer for each topic and day."""

    def __init__(self, directory: Path, name: str, compression: str) -> None:
        self._directory = directory
        self._name = name
        self._compression = compression
        self._attempt = uuid.uuid4().hex
        self._columns = {each: kind for each, kind in MESSAGE_COLUMNS.items() if each != "topic"}
        self._batches: list[pa.RecordBatch] = []
        self._numbers: list[NDArray[np.int64]] = []
        self._days: list[NDArray[np.int64]] = []
        self._names: dict[str, int] = {}
        self._held = 0
        self._writers: dict[str, pq.ParquetWriter] = {}

    def add(self, piece: Piece, topics: list[str], number: NDArray[np.int64]) -> None:
        """Add the piece's records, of topics[number]; writes once there are _HELD_BYTES."""
        batch = view_batch(piece.data, piece.headers, self._columns)
        own = np.array([self._names.setdefault(text, len(self._names)) for text in topics])
        self._batches.append(batch)
        self._numbers.append(own[number])
        self._days.append(counted_in(DAY_MS, piece.headers.store_timestamp))
        self._held += batch.nbytes
        if self._held >= _HELD_BYTES:
            self._write()

    def close(self) -> list[ParquetPart]:
        """Write the last batches and give the files their names; returns the files."""
        self._write()
        parts = []
        for folder, writer in self._writers.items():
            writer.close()
            path = self._directory / folder / self._name
            self._aside(folder).replace(path)
            parts.append(ParquetPart(folder, self._name, path.stat().st_size))
        self._writers = {}
        return parts

    def drop(self) -> None:
        """After a failure: remove the files."""
        for folder, writer in self._writers.items():
            writer.close()
            self._aside(folder).unlink(missing_ok=True)

    def _write(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        number, day = np.concatenate(self._numbers), np.concatenate(self._days)
        firsts, group = distinct_pairs(number, day)
        order = stable_order(group, len(firsts))
        bounds = offsets_of(np.bincount(group, minlength=len(firsts)))
        names = list(self._names)
        if len(firsts) > 1:
            table = table.take(numbers(order, pa.int64()))
        for place, row in enumerate(firsts.tolist()):
            begin, end = int(bounds[place]), int(bounds[place + 1])
            topic = names[int(number[row])]
            self._writer(partition_folder(topic, _day_text(int(day[row])))).write_table(
                table.slice(begin, end - begin)
            )
        self._batches, self._numbers, self._days, self._held = [], [], [], 0

    def _writer(self, folder: str) -> pq.ParquetWriter:
        writer = self._writers.get(folder)
        if writer is None:
            path = self._aside(folder)
            path.parent.mkdir(parents=True, exist_ok=True)
            writer = self._writers[folder] = parquet_writer(
                path, self._batches[0].schema, self._compression
            )
        return writer

    def _aside(self, folder: str) -> Path:
        # Readers of Parquet folders skip names that begin with a dot.
        return self._directory / folder / f".{self._name}.{self._attempt}"


class _Raw:
    """One task's file of the raw form."""

    def __init__(self, path: Path, compression: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        self._writer: pq.ParquetWriter | None = parquet_writer(self._aside, RAW_SCHEMA, compression)
        self._records = 0
        self._size = 0

    def records(self, piece: Piece) -> None:
        """The records of a piece, their bytes as they are."""
        positions, sizes = piece.walk.positions, piece.walk.sizes.astype(np.int64)
        data = sliced(piece.data, positions, sizes, pa.binary())
        self._rows(positions + piece.base, piece.walk.sizes, RECORD, data)
        self._records += piece.count
        self._size += int(sizes.sum())

    def others(self, log: LogBytes, start: int, end: int) -> None:
        """The bytes start .. end of the log, without long runs of zeros."""
        offset = start
        while (offset := log.next_data(offset)) < end:
            data = read(log, offset, min(_OTHER_BYTES, end - offset))
            if not data:
                return
            row = data.rstrip(b"\0")
            if row:
                size = np.array([len(row)], np.int32)
                self._rows(np.array([offset]), size, OTHER, strings([row], pa.binary()))
            offset += len(data)

    def close(self, name: str) -> RawPart:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._aside.replace(self._path)
        return RawPart(name, self._records, self._size)

    def drop(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._aside.unlink(missing_ok=True)

    def _rows(
        self, offsets: NDArray[np.int64], sizes: NDArray[np.int32], kind: str, data: pa.Array
    ) -> None:
        kinds = pa.DictionaryArray.from_arrays(
            numbers(np.zeros(len(offsets), np.int32), pa.int32()), strings([kind], pa.string())
        )
        batch = pa.RecordBatch.from_arrays(
            [numbers(offsets, pa.int64()), numbers(sizes, pa.int32()), kinds, data],
            schema=RAW_SCHEMA,
        )
        assert self._writer is not None
        self._writer.write_batch(batch)


def _day_text(day: int) -> str:
    return NO_DAY if day == NO_DATE else (EPOCH + timedelta(days=day)).date().isoformat()


def rest_of(log_start: int, log_end: int, spans: Iterable[Span]) -> list[Span]:
    """The parts of the files' spans that lie before the log's first record or behind its end."""
    rest = []
    for span in spans:
        if span.start < log_start:
            rest.append(Span(span.base, span.file_end, span.start, min(span.end, log_start)))
        if span.end > log_end:
            rest.append(Span(span.base, span.file_end, max(span.start, log_end), span.end))
    return rest

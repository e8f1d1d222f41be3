"""Turns a span into the Arrow batches of each view, in the task that reads the bytes.

    messages   a row a record, every field            raw      a row a record, its bytes
    entries    a row a queue and window: its units     index    a row a window: its index entries
    audit      a row a span: its findings              blocks   a row a block: its CRC

The aggregating views exist because moving rows costs more than reading the log: units or entries
packed into one binary value cost a fiftieth of the same in rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tandemlog.arrow.plain_arrays import batch_of, numbers
from tandemlog.arrow.text_columns import sliced
from tandemlog.format.fast_crc import crc32
from tandemlog.format.files.queue_unit import DEFAULT_DELAY_LEVELS, DelayLevels
from tandemlog.logs.audit.audit_span import audit_span
from tandemlog.logs.job_errors import CorruptLogError, OnCorruption
from tandemlog.logs.reading.damaged_record import lenient_record, record_text
from tandemlog.logs.reading.log_bytes import LogBytes, read
from tandemlog.logs.reading.log_files import LogFiles
from tandemlog.logs.reading.log_spans import Span
from tandemlog.logs.reading.selection import Selection
from tandemlog.logs.reading.span_scan import DamagedPiece, Piece, SpanScan
from tandemlog.logs.reading.window_dispatch import dispatched, index_items, queue_slices
from tandemlog.logs.view_columns import FAULT, Columns, arrow_schema, view_batch

from .segment_options import View

BATCH_WINDOW_BYTES = 8 << 20
BATCH_RECORDS = 8192
_BLOCK_ROWS = 4096


@dataclass(frozen=True, slots=True)
class ReadTask:
    """How to read a span; the fields are those of SegmentOptions, and the store's delay levels."""

    view: View
    columns: Columns
    on_corruption: OnCorruption
    verify_crc: bool
    index_tags: bool
    block_bytes: int
    delay_levels: str = DEFAULT_DELAY_LEVELS
    selection: Selection = field(default_factory=Selection)


@dataclass(frozen=True, slots=True)
class _Reading:
    log: LogBytes
    files: LogFiles
    span: Span
    task: ReadTask

    def scan(self, window_bytes: int, window_records: int) -> Iterator[Piece | DamagedPiece]:
        """The wanted records, and all damage."""
        scan = SpanScan(
            self.log,
            self.span,
            check_crc=self.task.verify_crc,
            window_bytes=window_bytes,
            window_records=window_records,
        )
        for part in scan:
            chosen = self.task.selection.of(part) if isinstance(part, Piece) else part
            if isinstance(chosen, DamagedPiece) or chosen.count:
                yield chosen

    def pieces(self, window_bytes: int, window_records: int) -> Iterator[Piece]:
        """The records; damage raises CorruptLogError with onCorruption=fail."""
        for part in self.scan(window_bytes, window_records):
            if isinstance(part, Piece):
                yield part
            elif self.task.on_corruption is OnCorruption.FAIL:
                raise self.error(part)

    def error(self, damage: DamagedPiece) -> CorruptLogError:
        path = self.files.path_of(damage.start)
        return CorruptLogError(path, damage.start, self.reason(damage))

    def reason(self, damage: DamagedPiece) -> str:
        record = lenient_record(self.log, damage.start, self.span.file_end)
        return f"{record_text(record)}: {damage.reason}"


def batches(log: LogBytes, files: LogFiles, span: Span, task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The rows of one span. Raises CorruptLogError with onCorruption=fail, OSError, FetchError."""
    yield from _VIEWS[task.view](_Reading(log, files, span, task))


def _messages(reading: _Reading) -> Iterator[pa.RecordBatch]:
    task = reading.task
    report = task.on_corruption is OnCorruption.REPORT
    columns = {name: kind for name, kind in task.columns.items() if name != FAULT}
    levels = DelayLevels(task.delay_levels)
    for part in reading.scan(BATCH_WINDOW_BYTES, BATCH_RECORDS):
        if isinstance(part, Piece):
            batch = view_batch(part.data, part.headers, columns, levels)
            if FAULT in task.columns:
                faults = pa.nulls(part.count, pa.string())
                batch = pa.RecordBatch.from_arrays(
                    [*batch.columns, faults], schema=arrow_schema(task.columns)
                )
            yield batch
        elif report:
            row = {
                "physical_offset": part.start,
                "size": part.end - part.start,
                FAULT: f"{reading.files.path_of(part.start)}: {reading.reason(part)}",
            }
            yield _batch([{name: row.get(name) for name in task.columns}], task.columns)
        elif task.on_corruption is OnCorruption.FAIL:
            raise reading.error(part)


def _raw(reading: _Reading) -> Iterator[pa.RecordBatch]:
    for piece in reading.pieces(BATCH_WINDOW_BYTES, BATCH_RECORDS):
        yield _raw_batch(piece, reading.task.columns)


def _raw_batch(piece: Piece, columns: Columns) -> pa.RecordBatch:
    positions, sizes = piece.walk.positions, piece.walk.sizes
    arrays: dict[str, Callable[[], pa.Array]] = {
        "physical_offset": lambda: numbers(positions + piece.base, pa.int64()),
        "size": lambda: numbers(sizes, pa.int32()),
        "record": lambda: sliced(piece.data, positions, sizes.astype(np.int64), pa.binary()),
    }
    return pa.RecordBatch.from_arrays(
        [arrays[name]() for name in columns], schema=arrow_schema(columns)
    )


def _entries(reading: _Reading) -> Iterator[pa.RecordBatch]:
    for piece in reading.pieces(8 << 20, 1 << 16):
        rows = [
            {
                "span": reading.span.start,
                "topic": each.topic,
                "queue_id": each.queue_id,
                "first_queue_offset": each.first,
                "count": len(each.units),
                "units": each.units.tobytes(),
            }
            for each in queue_slices(dispatched(piece, index=False))
        ]
        if rows:
            yield _batch(rows, reading.task.columns)


def _index(reading: _Reading) -> Iterator[pa.RecordBatch]:
    for piece in reading.pieces(8 << 20, 1 << 16):
        items = index_items(dispatched(piece, index=True, index_tags=reading.task.index_tags))
        row = {"span": reading.span.start, "count": len(items), "entries": items.tobytes()}
        yield _batch([row], reading.task.columns)


def _audit(reading: _Reading) -> Iterator[pa.RecordBatch]:
    audit = audit_span(reading.log, reading.files, reading.span, check_crc=reading.task.verify_crc)
    yield _batch([audit.row()], reading.task.columns)


def _blocks(reading: _Reading) -> Iterator[pa.RecordBatch]:
    """Blocks have the same offsets in every copy of a log: counted from the start of a file."""
    span, size = reading.span, reading.task.block_bytes
    first = span.base + -(-(span.start - span.base) // size) * size
    rows: list[dict[str, Any]] = []
    for offset in range(first, span.end, size):
        data = read(reading.log, offset, min(size, span.file_end - offset))
        rows.append({"physical_offset": offset, "size": len(data), "crc32": crc32(data)})
        if len(rows) == _BLOCK_ROWS:
            yield _batch(rows, reading.task.columns)
            rows = []
    if rows:
        yield _batch(rows, reading.task.columns)


def _batch(rows: list[dict[str, Any]], columns: Columns) -> pa.RecordBatch:
    return batch_of(rows, arrow_schema(columns))


_VIEWS: dict[View, Callable[[_Reading], Iterator[pa.RecordBatch]]] = {
    View.MESSAGES: _messages,
    View.RAW: _raw,
    View.ENTRIES: _entries,
    View.INDEX: _index,
    View.AUDIT: _audit,
    View.BLOCKS: _blocks,
}

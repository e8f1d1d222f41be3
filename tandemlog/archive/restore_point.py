"""Where a log that is restored begins and ends, and which tables go with it.

    spans      [0 ──────── 700)   [1300 ──────────────── 1900)
    --until 1600                        ├────────┤ ▲
                                        ▲        └ the last record that ends at or before 1600
                                        └ the first start of a commit log file in that span
    states     0 ──── 650        1300 ──── 1500 ── 1700
                                             ▲
                                             the newest that is not above the end

The end is where a record ends: the last one that ends at or before an offset, or the last one in
the order of the log whose store time is not later than a time. Store times step back at a failover
of clocks: all records up to that one are there, as a prefix of the log.

Of all manifests the newest counts. A point that it does not reach is answered by its own end: what
an older branch has beyond that was cut from the log.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..format.archive.manifest import Manifest, SegmentEntry, StateEntry
from ..format.archive.segment_index import BLOCK_BYTES, NO_RECORD
from ..format.columns.faults import walk_strict
from .archive_reader import ArchiveReader
from .errors import NotArchivedError


@dataclass(frozen=True, slots=True)
class Until:
    """Up to a log offset, or a store time (ms), or neither: all there is."""

    offset: int | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """Log offsets; `state`: the tables at or below the end; `later`: the first ones above it;
    `prologue`: with what came before `begin`, if that is not 0. None: there are none."""

    begin: int
    end: int
    state: StateEntry | None
    later: StateEntry | None
    prologue: StateEntry | None


def restore_point(reader: ArchiveReader, until: Until) -> RestorePoint:
    """Raises NotArchivedError where nothing of the log is at or before that point."""
    manifest = reader.manifest
    end = end_at(reader, until)
    spans = [each for each in manifest.spans() if each[0] < end]
    if not spans:
        raise NotArchivedError(
            f"{reader.store.url} has no record at or before {_text(until)}: it has the log "
            f"{_spans_text(manifest)}"
        )
    begin = -(-spans[-1][0] // manifest.file_size) * manifest.file_size
    if begin >= end:
        raise NotArchivedError(
            f"{reader.store.url} has no start of a commit log file before {end}: it has the log "
            f"{_spans_text(manifest)}, in files of {manifest.file_size} bytes"
        )
    above = [each for each in manifest.states if each.name.log_offset > end]
    return RestorePoint(
        begin,
        end,
        manifest.state_at(end),
        min(above, key=lambda each: each.name.log_offset, default=None),
        manifest.prologue_at(begin) if begin else None,
    )


def end_at(reader: ArchiveReader, until: Until) -> int:
    """Where the last record at or before that point ends; 0 if there is none."""
    if until.offset is not None:
        return _end_at_offset(reader, until.offset)
    if until.time_ms is not None:
        return _end_at_time(reader, until.time_ms)
    return reader.manifest.end


def _end_at_offset(reader: ArchiveReader, offset: int) -> int:
    """0 if no record ends there or before."""
    for entry in reversed(reader.manifest.covering(0, offset)):
        if entry.end <= offset:
            return entry.end
        for _, ends, _ in _runs(reader, entry, below=offset):
            reached = ends[ends <= offset]
            if len(reached):
                return int(reached[-1])
    return 0


def _end_at_time(reader: ArchiveReader, time_ms: int) -> int:
    """0 if all records are later."""
    manifest = reader.manifest
    if not any(each.records and each.last_ms > time_ms for each in manifest.segments):
        return manifest.end
    for entry in reversed(manifest.segments):
        if not entry.records or entry.first_ms > time_ms:
            continue
        for _, ends, times in _runs(reader, entry, not_before=time_ms):
            in_time = ends[times <= time_ms]
            if len(in_time):
                return int(in_time[-1])
    return 0


def _runs(
    reader: ArchiveReader,
    entry: SegmentEntry,
    *,
    below: int | None = None,
    not_before: int | None = None,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """The records of the segment, from its last block to its first: where those that begin in a
    block begin and end, and their store times. Only blocks with a record that begins `below` an
    offset, or with a store time that is not later than `not_before`."""
    blocks = reader.index(entry).blocks
    firsts = [
        (number, entry.start + number * BLOCK_BYTES + int(block["first_record"]))
        for number, block in enumerate(blocks)
        if block["first_record"] != NO_RECORD
    ]
    firsts = [each for each in firsts if each[1] < entry.end]
    stop = entry.end
    for number, first in reversed(firsts):
        begin, stop_here = first, stop
        stop = first
        if below is not None and first >= below:
            continue
        if not_before is not None and int(blocks["first_ms"][number]) > not_before:
            continue
        walked, headers = walk_strict(reader.read(begin, stop_here), base_offset=begin)
        starts = begin + walked.positions
        yield starts, starts + walked.sizes, headers.store_timestamp.astype(np.int64)


def _text(until: Until) -> str:
    if until.offset is not None:
        return f"log offset {until.offset}"
    return "its end" if until.time_ms is None else f"the time {until.time_ms} ms"


def _spans_text(manifest: Manifest) -> str:
    return ", ".join(f"{begin} to {end}" for begin, end in manifest.spans()) or "of no byte"

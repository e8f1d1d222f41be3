"""Spans of an archive: parts of its segments, and of those only what may be wanted.

    segments   [ a b ][ b ][ a a ][ c ]        planned by the manifest: log offsets, store times
    blocks     |a|b| b|     |a |a |            chosen by a segment's index: topics, store times
               |-|          |-----|            spans that are read for topic a

A segment begins and ends with a record, and each block of its index says where its first record
begins: no span has to search for one. Queue units tell which blocks have records of a topic; where
a segment has records without a unit (those of transactions of old brokers, batch queues), or was
cut, all of its blocks are read.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tandemlog.archive.errors import ObjectMissingError
from tandemlog.format.archive.manifest import Manifest, SegmentEntry
from tandemlog.format.archive.segment_index import BLOCK_BYTES, NO_RECORD, SegmentIndex

from .archived_log import ArchivedLog, ArchivedLogSource
from .log_bytes import LogBytes
from .log_source import LogSource
from .log_spans import Span, grouped, pieces_wanted, spans_for_tasks
from .selection import Selection


def planned(
    source: LogSource, start: int, end: int, target_bytes: int, cores: int, selection: Selection
) -> list[list[Span]]:
    """The spans of each task over the log offsets start .. end, as spans_for_tasks; of an archive
    without segments whose store times are not wanted."""
    if not isinstance(source, ArchivedLogSource):
        return spans_for_tasks(source.files, start, end, target_bytes, cores)
    segments = [each for each in source.manifest.covering(start, end) if _may_have(each, selection)]
    total = sum(min(each.end, end) - max(each.start, start) for each in segments)
    count = pieces_wanted(total, target_bytes, cores)
    piece = -(-total // count) if total else 1
    return grouped(_joined(source.manifest, segments, start, end, piece), count)


def _may_have(entry: SegmentEntry, selection: Selection) -> bool:
    if selection.is_all:
        return True
    return bool(entry.records) and selection.may_have(entry.first_ms, entry.last_ms)


def _joined(
    manifest: Manifest, segments: list[SegmentEntry], start: int, end: int, piece: int
) -> Iterator[Span]:
    """A span for each run of segments in one file, of at most `piece` bytes or one segment."""
    run: list[SegmentEntry] = []
    for each in segments:
        if run and (
            run[-1].end != each.start
            or each.start % manifest.file_size == 0
            or each.end - run[0].start > piece
        ):
            yield _span(manifest, run, start, end)
            run = []
        run.append(each)
    if run:
        yield _span(manifest, run, start, end)


def _span(manifest: Manifest, run: list[SegmentEntry], start: int, end: int) -> Span:
    first, last = run[0].start, run[-1].end
    base = first - first % manifest.file_size
    return Span(base, last, max(first, start), min(last, end), at_record=start <= first)


def wanted_parts(log: LogBytes, span: Span, selection: Selection) -> Iterator[Span]:
    """The parts of a planned span in which a record may be wanted: all of it, save in an archive.
    Raises FetchError, CorruptLogError."""
    if not isinstance(log, ArchivedLog) or selection.is_all:
        yield span
        return
    for entry in log.reader.manifest.covering(span.start, span.end):
        if not _may_have(entry, selection):
            continue
        try:
            index = log.index(entry)
        except ObjectMissingError:
            # it was joined with others meanwhile: their bytes are found as they are read
            parts = [(entry.start, entry.end)]
        else:
            parts = list(_parts(index, entry, selection))
        for begin, stop in parts:
            low, high = max(begin, span.start), min(stop, span.end)
            if low < high:
                at_record = low == begin or (low == span.start and span.at_record)
                yield replace(
                    span, file_end=stop, start=low, end=high, at_record=at_record, continued=False
                )


def _parts(
    index: SegmentIndex, entry: SegmentEntry, selection: Selection
) -> Iterator[tuple[int, int]]:
    """Log offsets (start, end) of the wanted blocks' records; those of neighbours are joined."""
    blocks = index.blocks
    numbers = np.flatnonzero(blocks["first_record"] != NO_RECORD)
    begins = entry.start + numbers * BLOCK_BYTES + blocks["first_record"][numbers].astype(np.int64)
    inside = begins < entry.end
    numbers, begins = numbers[inside], begins[inside]
    if not len(begins):
        return
    chosen = np.ones(len(begins), np.bool_)
    if not selection.has_all_times:
        chosen &= blocks["last_ms"][numbers] >= selection.since_ms
        chosen &= blocks["first_ms"][numbers] < selection.before_ms
    if selection.topics and index.records == len(index.units):
        chosen &= _with_topics(index, begins, selection)
    bounds = np.append(begins, entry.end).tolist()
    edges = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8)))
    for first, behind in pairwise(edges.tolist()):
        if chosen[first]:
            yield bounds[first], bounds[behind]


def _with_topics(
    index: SegmentIndex, begins: NDArray[np.int64], selection: Selection
) -> NDArray[np.bool_]:
    """bool[blocks]: in which a record of the topics begins."""
    found = np.zeros(len(begins), np.bool_)
    for run in index.runs:
        if run.topic in selection.topics:
            offsets = index.units_of(run)["physical_offset"].astype(np.int64)
            found[np.searchsorted(begins, offsets, side="right") - 1] = True
    return found

"""Spans of a log: pieces of its files that tasks read in parallel.

    file   |r r r r r r r r r r r r r r B....|
    spans  |-------|-------|-----------------|      a record belongs to the span it begins in

A span may begin anywhere. Its reader searches for the first record in it: the magic, and a physical
offset that is this place. The last span of a file always reaches its end, since bytes after a BLANK
may look like records: only a reader that comes from the front can tell.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .log_files import LogFiles

TARGET_BYTES = 128 << 20
LEAST_BYTES = 16 << 20
LAST_SPAN_BYTES = 16 << 20
"""No file is split closer to its end; records are smaller than that."""
MOST_PIECES = 20_000
"""With millions of them, as `targetBytes=128` in place of 128m makes, Spark's scheduler runs out of
memory, and the query never ends. A log that large has larger pieces instead."""


@dataclass(frozen=True, slots=True)
class Span:
    """Log offsets start .. end of the file base .. file_end.

    `at_record`: a record, or the file's BLANK, must begin at `start`. `continued`: another span
    begins at `end`, and searches for its first record, so this one has to check that there is one.
    """

    base: int
    file_end: int
    start: int
    end: int
    at_record: bool = True
    continued: bool = False

    @property
    def length(self) -> int:
        return self.end - self.start


def pieces_wanted(total: int, target_bytes: int, cores: int) -> int:
    """How many spans of equal length: near the target, a multiple of the cores so that no core is
    idle at the end, not so many that starting them costs more than reading, and MOST_PIECES at
    most."""
    wanted = min(max(-(-total // max(target_bytes, 1)), 1), MOST_PIECES)
    if wanted < cores:
        wanted = max(min(cores, total // LEAST_BYTES), wanted, 1)
    elif wanted % cores:
        wanted += cores - wanted % cores
    return wanted


def spans_for_tasks(
    files: LogFiles, start: int, end: int, target_bytes: int, cores: int
) -> list[list[Span]]:
    """The spans of each task over the log offsets start .. end."""
    count = pieces_wanted(end - start, target_bytes, cores)
    return grouped(split(files, start, end, -(-(end - start) // count)), count)


def split(files: LogFiles, start: int, end: int, piece_bytes: int) -> list[Span]:
    """Spans of about `piece_bytes` over the log offsets start .. end, in order."""
    spans: list[Span] = []
    for file in files.files:
        first, last = max(start, file.base), min(end, file.end)
        if first < last:
            spans.extend(_split_file(file.base, file.end, first, last, piece_bytes))
    return spans


def _split_file(base: int, file_end: int, start: int, end: int, piece: int) -> Iterator[Span]:
    count = max(round((end - start) / max(piece, 1)), 1)
    step = -(-(end - start) // count)
    guard = file_end - min(LAST_SPAN_BYTES, (file_end - base) // 4)
    while start < end:
        until = start + step
        if until >= end or until > guard:
            until = end
        yield Span(base, file_end, start, until, start == base, until < end)
        start = until


def grouped(spans: Iterable[Span], groups: int) -> list[list[Span]]:
    """The spans in order, in at most `groups` groups of about equal length."""
    ordered = list(spans)
    total = sum(span.length for span in ordered)
    share = max(-(-total // max(groups, 1)), 1)
    result: list[list[Span]] = []
    filled = 0
    for span in ordered:
        if not result or (
            filled + span.length // 2 >= share * len(result) and len(result) < groups
        ):
            result.append([])
        result[-1].append(span)
        filled += span.length
    return result

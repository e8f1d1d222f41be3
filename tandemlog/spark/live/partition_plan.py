"""From spans of queues to the partitions of a read: long spans are split, short ones combined.

    queue 0  ##########        maxRecordsPerPartition, minPartitions     [####] [####] [##]
    queue 1  ##                maxPartitions, and what is too short      [## #]
    queue 2  #                 to be worth a task

A task costs tens of milliseconds, so spans below SMALL rows share one, but not more than QUEUES of
them: several tasks read many short spans, whatever the size of their rows. The result depends only
on the spans and the options: a batch that is planned again after a restart gets the same
partitions, which the exactly-once writer needs. A partition keeps the order within a queue; several
tasks read a split queue at once.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from tandemlog.consume.reading.span_progress import QueueSpan

from ..cluster.live_options import Partitioning

SMALL: Final = 50_000
"""Rows that are worth a task of their own."""
QUEUES: Final = 100
"""Spans that are worth a task of their own."""
ANY_NUMBER: Final = 1 << 62
"""In place of QUEUES, for batches that an older version planned, without such a bound."""


def plan(
    spans: Iterable[QueueSpan], wishes: Partitioning, queues: int = QUEUES
) -> list[tuple[QueueSpan, ...]]:
    """The spans of each partition, in order; no partition is empty."""
    pieces = [piece for span in spans for piece in _of_at_most(span, wishes.max_records)]
    least = wishes.min_partitions or 1
    if len(pieces) < least:
        pieces = _at_least(pieces, least)
    groups = _packed(pieces, wishes.max_records or SMALL, queues, least)
    most = wishes.max_partitions
    return groups if most is None or len(groups) <= most else _balanced(pieces, most)


def _of_at_most(span: QueueSpan, rows: int | None) -> list[QueueSpan]:
    if rows is None or span.count <= rows:
        return [span] if span.count > 0 else []
    return _split(span, -(-span.count // rows))


def _at_least(pieces: Sequence[QueueSpan], least: int) -> list[QueueSpan]:
    """Pieces split in proportion to their rows, until there are `least`, or one for each row."""
    total = sum(piece.count for piece in pieces)
    if total <= least:
        return [part for piece in pieces for part in _split(piece, piece.count)]
    parts = [max(piece.count * least // total, 1) for piece in pieces]
    while sum(parts) < least:
        # Split the piece with most rows a part once more.
        at = max(range(len(pieces)), key=lambda each: (pieces[each].count / parts[each], -each))
        parts[at] += 1
    return [
        part
        for piece, count in zip(pieces, parts, strict=True)
        for part in _split(piece, min(count, piece.count))
    ]


def _split(span: QueueSpan, parts: int) -> list[QueueSpan]:
    cuts = [span.start + span.count * part // parts for part in range(parts + 1)]
    return [QueueSpan(span.topic, span.queue_id, start, end) for start, end in pairwise(cuts)]


def _packed(
    pieces: Sequence[QueueSpan], rows: int, queues: int, least: int
) -> list[tuple[QueueSpan, ...]]:
    """Neighbours combined up to `rows` rows and `queues` spans, in `least` groups or more."""
    groups: list[list[QueueSpan]] = []
    filled = 0
    for number, piece in enumerate(pieces):
        remaining = len(pieces) - number
        fits = groups and filled + piece.count <= rows and len(groups[-1]) < queues
        if fits and len(groups) + remaining > least:
            groups[-1].append(piece)
            filled += piece.count
        else:
            groups.append([piece])
            filled = piece.count
    return [tuple(group) for group in groups]


def _balanced(pieces: Sequence[QueueSpan], most: int) -> list[tuple[QueueSpan, ...]]:
    """Neighbours in `most` groups with about the same number of rows."""
    total = sum(piece.count for piece in pieces)
    groups: list[list[QueueSpan]] = [[] for _ in range(most)]
    before = 0
    for piece in pieces:
        middle = before + piece.count / 2
        groups[min(int(middle * most / total), most - 1)].append(piece)
        before += piece.count
    return [tuple(group) for group in groups if group]

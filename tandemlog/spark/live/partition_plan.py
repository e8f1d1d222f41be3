"""From spans of queues to the partitions of a read: long ones split, short ones put together.

    queue 0  ##########        maxRecordsPerPartition, minPartitions     [####] [####] [##]
    queue 1  ##                maxPartitions, and what is too short      [## #]
    queue 2  #                 to be worth a task

A task costs tens of milliseconds, so spans below SMALL rows share one, QUEUES of them at most: many
short ones are read by several tasks, whatever the size of their rows. The result depends only on
the spans and the options: a batch that is planned again after a restart gets the same partitions,
on which the exactly-once writer relies. The order within a queue is kept in a
partition; a queue that is split is read by several tasks at once.
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
"""In place of QUEUES, for batches that an older version planned: they had no such bound."""


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
    """Pieces split in proportion to their rows, until there are `least`, or one a row."""
    total = sum(piece.count for piece in pieces)
    if total <= least:
        return [part for piece in pieces for part in _split(piece, piece.count)]
    parts = [max(piece.count * least // total, 1) for piece in pieces]
    while sum(parts) < least:
        # The piece with most rows a part is split once more.
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
    """Neighbours together as long as they are not more than `queues` with `rows`, and `least`
    groups are left."""
    groups: list[list[QueueSpan]] = []
    held = 0
    for number, piece in enumerate(pieces):
        left = len(pieces) - number
        fits = groups and held + piece.count <= rows and len(groups[-1]) < queues
        if fits and len(groups) + left > least:
            groups[-1].append(piece)
            held += piece.count
        else:
            groups.append([piece])
            held = piece.count
    return [tuple(group) for group in groups]


def _balanced(pieces: Sequence[QueueSpan], most: int) -> list[tuple[QueueSpan, ...]]:
    """Neighbours in `most` groups of about as many rows."""
    total = sum(piece.count for piece in pieces)
    groups: list[list[QueueSpan]] = [[] for _ in range(most)]
    before = 0
    for piece in pieces:
        middle = before + piece.count / 2
        groups[min(int(middle * most / total), most - 1)].append(piece)
        before += piece.count
    return [tuple(group) for group in groups if group]

"""How far the spans of a partition are read, and what a node's answer about one of them means.

    FOUND                             rows, in a row from the position on unless filtered by tags
    NO_MATCHED_MESSAGE                nothing of the wanted tags: go on at next_offset; so it is
                                      where a filter came to the end of the queue
    TOO_SMALL, FOUND_NULL, REMOVING   messages are gone: DataLossError, or go on behind them
    the end of the queue, or beyond   the node has not got so far: ask again, or another node

No I/O and no clock.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tandemlog.pull_answer import PullPart
from tandemlog.received import ReceivedBatch
from tandemlog.v1 import broker_pb2

from .live_errors import DataLossError
from .offsets import Span

logger = logging.getLogger(__name__)

_GONE: Final = frozenset(
    {
        broker_pb2.OFFSET_TOO_SMALL,
        broker_pb2.OFFSET_FOUND_NULL,
        broker_pb2.MESSAGE_WAS_REMOVING,
    }
)


_NOTHING_WANTED: Final = frozenset({broker_pb2.NO_MATCHED_MESSAGE, broker_pb2.OFFSET_OVERFLOW_ONE})


@dataclass(slots=True)
class _Reading:
    span: Span
    position: int


class Progress:
    """See the module. `filtered`: nodes leave messages of other tags out."""

    def __init__(self, spans: Iterable[Span], *, filtered: bool, fail_on_data_loss: bool) -> None:
        self._filtered = filtered
        self._fail = fail_on_data_loss
        self._open = [_Reading(span, span.start) for span in spans if span.count > 0]

    @property
    def done(self) -> bool:
        return not self._open

    def positions(self) -> list[broker_pb2.QueuePosition]:
        """What to ask for next; an answer's parts refer to this list by index."""
        return [
            broker_pb2.QueuePosition(
                topic=each.span.topic,
                queue_id=each.span.queue_id,
                queue_offset=each.position,
            )
            for each in self._open
        ]

    @property
    def most_rows(self) -> int:
        """Rows that any queue still has to give."""
        return max((each.span.end - each.position for each in self._open), default=0)

    def take(self, parts: Iterable[PullPart]) -> tuple[list[ReceivedBatch], bool]:
        """The rows of an answer to `positions()`, and whether anything moved. Raises
        DataLossError."""
        asked = list(self._open)
        found: list[ReceivedBatch] = []
        moved = False
        for part in parts:
            reading = asked[part.head.position_index]
            before = reading.position
            batch = self._one(reading, part)
            if batch is not None and len(batch):
                found.append(batch)
            moved = moved or reading.position > before
        self._open = [each for each in self._open if each.position < each.span.end]
        return found, moved

    def stuck(self) -> str:
        """Where it stands, for errors."""
        return ", ".join(
            f"{each.span.topic}/{each.span.queue_id} at {each.position} of {each.span.end}"
            for each in self._open[:5]
        )

    def _one(self, reading: _Reading, part: PullPart) -> ReceivedBatch | None:
        head = part.head
        if head.status == broker_pb2.FOUND:
            return self._rows(reading, part)
        if head.status in _GONE:
            self._lost(reading, max(head.next_offset, reading.position + 1), head)
        elif head.status in _NOTHING_WANTED:
            reading.position = max(reading.position, head.next_offset)
        return None

    def _rows(self, reading: _Reading, part: PullPart) -> ReceivedBatch:
        span, head = reading.span, part.head
        batch = ReceivedBatch(
            topic=span.topic,
            queue_id=span.queue_id,
            status=broker_pb2.PullStatus.Name(head.status),
            next_offset=head.next_offset,
            min_offset=head.min_offset,
            max_offset=head.max_offset,
            records=part.records,
            sizes=np.frombuffer(head.sizes, "<u4"),
        )
        if not self._filtered:
            self._check_complete(reading, batch)
        if head.next_offset > span.end:
            batch = batch.before(span.end)
        reading.position = head.next_offset
        return batch

    def _check_complete(self, reading: _Reading, batch: ReceivedBatch) -> None:
        """Without a filter every offset must be there."""
        offsets = batch.headers.queue_offset
        expected = np.arange(reading.position, reading.position + len(offsets))
        wrong = np.flatnonzero(offsets != expected)
        if len(wrong):
            first = int(wrong[0])
            self._report(
                f"{reading.span.topic}/{reading.span.queue_id}: offset {int(expected[first])} is "
                f"missing, {int(offsets[first])} stands in its place"
            )

    def _lost(self, reading: _Reading, following: int, head: broker_pb2.QueueRecords) -> None:
        self._report(
            f"{reading.span.topic}/{reading.span.queue_id}: the messages {reading.position}.."
            f"{min(following, reading.span.end)} are gone, the queue holds "
            f"{head.min_offset}..{head.max_offset} ({broker_pb2.PullStatus.Name(head.status)})"
        )
        reading.position = min(following, reading.span.end)

    def _report(self, text: str) -> None:
        if self._fail:
            raise DataLossError(f"{text}; failOnDataLoss=false reads what is left")
        logger.warning("data lost: %s", text)

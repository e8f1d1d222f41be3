"""From noted moments to the table: how long each sampled message waited in each stage.

    due ▸ called ▸ taken ▸ handed ▸ arrived ▸ append begun ▸ appended ▸ (slave) ▸ confirmed ─┬─▶
        acknowledgement   ▸ known in the loop ▸ written ▸ read by the client ▸ future done   │
        consumer          ▸ dispatched ▸ reading begun ▸ read ▸ sent ▸ received ▸ buffered ▸ hand

A message is followed by the number of its request, then by the log offset where the request ends,
then by its queue and offset. The waits of one message add up to its whole time; percentiles of
stages do not add up to the percentile of the sum, so the mean in the slowest hundredth of all
messages, which does add up, stands beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.stages.marks import Noted, Rows

Moments: TypeAlias = NDArray[np.int64]
"""i8[n], nanoseconds: when each sampled message passed a stage."""

PERCENTS = (50.0, 99.0, 99.9)
SLOWEST_PERCENT = 99.0


@dataclass(frozen=True, slots=True)
class StageRow:
    """Milliseconds in one stage: at PERCENTS, and on average in the slowest hundredth."""

    name: str
    at: tuple[float, ...]
    slowest_mean: float


@dataclass(frozen=True, slots=True)
class Way:
    """The stages on one way, the whole of it last."""

    name: str
    rows: tuple[StageRow, ...]

    @property
    def whole(self) -> StageRow:
        return self.rows[-1]


def way_of(name: str, moments: Sequence[tuple[str, Moments]]) -> Way:
    """Each of `moments` is named for the stage that ends with it; the first is the begin. Two
    threads may note two moments in the other order: then the later stage took no time. Raises
    ValueError for no messages."""
    at = np.maximum.accumulate(np.stack([each for _, each in moments]), axis=0)
    if not at.shape[1]:
        raise ValueError(f"{name}: no message was followed")
    waits = np.diff(at, axis=0) / 1e6
    whole = waits.sum(axis=0)
    slow = whole >= np.percentile(whole, SLOWEST_PERCENT)
    names = [stage for stage, _ in moments[1:]]
    rows = [_row(stage, wait, slow) for stage, wait in zip(names, waits, strict=True)]
    return Way(name, (*rows, _row(name, whole, slow)))


def _row(name: str, waits: NDArray[np.float64], slow: NDArray[np.bool_]) -> StageRow:
    at = np.percentile(waits, PERCENTS, method="inverted_cdf")
    return StageRow(name, tuple(map(float, at)), float(waits[slow].mean()))


def first_at(positions: Rows, offsets: Moments) -> Moments:
    """When a position, noted as (value, moment), had reached each of `offsets`. Raises ValueError
    where it never did."""
    reached = np.maximum.accumulate(positions[:, 0])
    index = np.searchsorted(reached, offsets)
    if len(offsets) and (not len(reached) or index.max() == len(reached)):
        raise ValueError(f"the position did not reach {offsets.max()}")
    found: Moments = positions[index, 1]
    return found


def by_number(rows: Rows, numbers: Moments) -> Rows:
    """The rows with these numbers, which are in the first field. Raises ValueError for a number
    without a row."""
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    index = np.searchsorted(rows[:, 0], numbers)
    if len(numbers) and (not len(rows) or index.max() == len(rows)):
        raise ValueError(f"nothing was noted of {numbers.max()}")
    found: Rows = rows[index]
    if (found[:, 0] != numbers).any():
        raise ValueError("of some numbers nothing was noted")
    return found


@dataclass(frozen=True, slots=True)
class Run:
    """What the processes of one run have noted; `slave` None: there was none."""

    producer: Noted
    consumer: Noted
    master: Noted
    slave: Noted | None = None

    def ways(self) -> tuple[Way, Way]:
        """To the acknowledgement, and to the consumer's hand."""
        [[began]] = self.producer.rows("began", 1)
        sent = self.producer.rows("sent", 4)
        sent = sent[sent[:, 2] >= began]
        sealed = self.producer.rows("sealed", 4)
        request = np.searchsorted(np.cumsum(sealed[:, 1]), sent[:, 1], side="right")
        ids = sealed[request, 0]
        # another producer of the same node had the same numbers before
        span = int(sealed[0, 2]), int(self.producer.rows("answered", 2)[-1, 1])
        appended = by_number(self.master.between("appended", 4, 1, *span), ids)
        ends = appended[:, 3]
        common = [
            ("due", sent[:, 2]),
            ("the sender is late", sent[:, 3]),
            ("lingers, until the client's loop takes it", sealed[request, 2]),
            ("framed, handed to the socket", self._of_client("written", ids)),
            ("until the node's loop reads it", self._of_node("arrived", 2, 1, span, ids)),
            ("until the append thread has it", appended[:, 1]),
            ("appended", appended[:, 2]),
            *self._replicated(ends),
            ("confirmed", first_at(self.master.rows("confirmed", 2), ends)),
        ]
        acknowledged = [
            *common,
            ("known in the node's loop", self._of_node("answer", 2, 1, span, ids)),
            ("answer written", self._written(span)[request]),
            ("answer read by the client's loop", self._of_client("answered", ids)),
            ("future done", by_number(self.producer.rows("done", 2), sent[:, 0])[:, 1]),
        ]
        return (
            way_of("send to acknowledgement", acknowledged),
            way_of("send to the consumer's hand", self._to_hand(common, sent[:, 0])),
        )

    def _of_client(self, name: str, ids: Moments) -> Moments:
        return by_number(self.producer.rows(name, 2), ids)[:, 1]

    def _of_node(
        self, name: str, fields: int, moment: int, span: tuple[int, int], ids: Moments
    ) -> Moments:
        return by_number(self.master.between(name, fields, moment, *span), ids)[:, moment]

    def _written(self, span: tuple[int, int]) -> Moments:
        """Of each request in turn: answers come in the order of requests."""
        return self.master.between("written", 2, 0, *span)[:, 1]

    def _replicated(self, ends: Moments) -> list[tuple[str, Moments]]:
        if self.slave is None:
            return []
        return [
            ("the slave has it", first_at(self.slave.rows("wrote", 2), ends)),
            ("the slave has flushed it", first_at(self.slave.rows("flushed", 2), ends)),
        ]

    def _to_hand(
        self, common: Sequence[tuple[str, Moments]], numbers: Moments
    ) -> list[tuple[str, Moments]]:
        hand = by_number(self.consumer.rows("hand", 7), numbers)
        number, begun, read = self._read(hand[:, 1], hand[:, 2])
        sent = by_number(self.master.rows("read_sent", 3), number)[:, 2]
        return [
            *common,
            ("dispatched", first_at(self.master.rows("reputed", 2), hand[:, 3] + 1)),
            ("until a reading of the pull begins", begun),
            ("read", read),
            ("answer written", sent),
            ("received by the client", hand[:, 4]),
            ("until the client's loop has it", hand[:, 5]),
            ("in the caller's hand", hand[:, 6]),
        ]

    def _read(self, queues: Moments, offsets: Moments) -> tuple[Moments, Moments, Moments]:
        """Of the first reading that went beyond each offset and was sent, not given up: its
        number, begin and end. Raises ValueError where there was none."""
        reads = self.master.rows("read", 5)
        reads = reads[np.isin(reads[:, 0], self.master.rows("read_sent", 3)[:, 0])]
        found = np.zeros((len(queues), 3), np.int64)
        for queue in np.unique(queues):
            of_queue = reads[reads[:, 1] == queue]
            mine = queues == queue
            reached = np.maximum.accumulate(of_queue[:, 2])
            index = np.searchsorted(reached, offsets[mine], side="right")
            if index.max() >= len(of_queue):
                raise ValueError(f"no reading of queue {queue} went beyond {offsets[mine].max()}")
            found[mine] = of_queue[index][:, [0, 3, 4]]
        return found[:, 0], found[:, 1], found[:, 2]

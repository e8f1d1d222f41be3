"""How far the spans of a partition are read, and in which order their rows continue.

    asked for    span 0  #####....    span 1  ##........    span 2  ..........
    handed on    span 0, all of it, then span 1, then span 2

Nodes are asked for several spans at once, and rows of a later span that arrive before its turn are
held back, `hold_bytes` at most. So the order of a partition's rows depends only on its offsets: not
on the size of a response, nor on which node sent it and how far that node was. The exactly-once
writer relies on this.

tandemlog.consume.doubts decides what a response means: a node that is behind must be asked again,
or another one; messages are lost when every node that may have them lacks them. A message that is
damaged on one node is asked of the others: only one that no node has whole is lost. So the bodies'
CRCs are checked here, before a row counts as read. No I/O and no clock.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np

from tandemlog.cluster.pull_answer import PullPart
from tandemlog.consume.doubts import Doubts, Kind, Said, judge
from tandemlog.consume.received import ReceivedBatch
from tandemlog.format.columns.crcs import first_bad_crc
from tandemlog.v1 import broker_pb2

from ..cluster.errors import ClusterError, DataLossError
from ..cluster.offsets import Queue, QueueSpan

logger = logging.getLogger(__name__)

HOLD_BYTES: Final = 8 << 20
_AT_ONCE: Final = 1_000
"""Queues of one request: a node takes a few times as many."""


@dataclass(slots=True)
class _Reading:
    number: int
    span: QueueSpan
    position: int
    held: list[ReceivedBatch] = field(default_factory=list)
    damage: dict[str, str] = field(default_factory=dict)
    """Of the next message: by endpoint of the node that sent it, what is wrong with it."""

    @property
    def finished(self) -> bool:
        return self.position >= self.span.end

    def __str__(self) -> str:
        return f"{self.span.topic}/{self.span.queue_id} at {self.position} of {self.span.end}"


class PullProgress:
    """See the module. `filtered`: nodes leave messages of other tags out. `verify_crc`: a body that
    is not the one that was sent is damage, not a row."""

    def __init__(
        self,
        spans: Iterable[QueueSpan],
        *,
        filtered: bool,
        fail_on_data_loss: bool,
        hold_bytes: int = HOLD_BYTES,
        verify_crc: bool = True,
    ) -> None:
        self._filtered = filtered
        self._fail = fail_on_data_loss
        self._hold_bytes = hold_bytes
        self._verify_crc = verify_crc
        self._doubts: Doubts[int] = Doubts()
        # in order; the first one is never finished
        self._open = [
            _Reading(number, span, span.start)
            for number, span in enumerate(spans)
            if span.count > 0
        ]

    @property
    def done(self) -> bool:
        return not self._open

    def _asked(self) -> list[_Reading]:
        """What is read next: the first span alone while much is held behind it."""
        held = sum(len(batch.records) for each in self._open for batch in each.held)
        if held >= self._hold_bytes:
            return self._open[:1]
        return list(islice((each for each in self._open if not each.finished), _AT_ONCE))

    def positions(self) -> list[broker_pb2.QueuePosition]:
        """What to ask for next; an answer's parts refer to this list by index."""
        return [
            broker_pb2.QueuePosition(
                topic=each.span.topic,
                queue_id=each.span.queue_id,
                queue_offset=each.position,
            )
            for each in self._asked()
        ]

    @property
    def most_rows(self) -> int:
        """Rows that any queue that is asked for still has to give."""
        return max((each.span.end - each.position for each in self._asked()), default=0)

    def take(
        self, parts: Iterable[PullPart], endpoint: str, must_say: Collection[str] | None
    ) -> tuple[list[ReceivedBatch], bool]:
        """The rows whose turn it is after the answer of the node at `endpoint` to `positions()`,
        and whether anything moved. `must_say` are the endpoints of the nodes that may have what
        this one lacks, None if no node that knows can be asked. Raises DataLossError."""
        asked = self._asked()
        moved = False
        for part in parts:
            reading = asked[part.head.position_index]
            before = reading.position
            self._one(reading, part, endpoint)
            gone = self._doubts.gone(reading.number, must_say)
            if gone is not None:
                self._lost(reading, gone)
            moved = moved or reading.position > before
        return self._ready(), moved

    def _ready(self) -> list[ReceivedBatch]:
        """The rows that have their turn."""
        found: list[ReceivedBatch] = []
        while self._open:
            first = self._open[0]
            found += first.held
            first.held = []
            if not first.finished:
                break
            del self._open[0]
        return found

    def stuck(self) -> str:
        """Where it stands, for errors."""
        return ", ".join(str(each) for each in self._open[:5])

    def has_heard(self, endpoint: str) -> bool:
        """Whether that node has said that it lacks what is asked for."""
        return all(self._doubts.said_by(each.number, endpoint) for each in self._asked())

    def give_up(
        self, reason: str, master: str | None, ends: Mapping[Queue, int] | None
    ) -> list[ReceivedBatch]:
        """Nothing has moved for long, so the master alone decides. Messages that it does not have
        were cut off; raises DataLossError for these and for messages that it no longer has, or
        skips them and returns the rows whose turn it is then. `ends` are those of the queues by
        its word, None if it does not know them now: what it sends may end before what its log
        has. Raises ClusterError if the master does not respond, or has the messages."""
        for each in self._asked():
            said = self._doubts.said_by(each.number, master) if master is not None else None
            if said is None or (said.kind is not Kind.GONE and ends is None):
                raise ClusterError(
                    f"{reason}: {each}; the nodes that answer are behind or lack messages, and "
                    "no master says that they are lost"
                )
            if said.kind is Kind.GONE:
                self._lost(each, said)
                continue
            assert ends is not None, "looked at above"
            end = ends.get(each.span.queue, 0)
            if end > each.position:
                raise ClusterError(f"{reason}: {each}, though the master's queue ends at {end}")
            self._report(f"{reason}: {each}, and the master's queue ends at {end}: its log was cut")
            each.position = each.span.end
        return self._ready()

    def _one(self, reading: _Reading, part: PullPart, endpoint: str) -> None:
        head, span = part.head, reading.span
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
        row, fault = self._fault(batch)
        if row == 0:
            self._note_damage(reading, batch, fault, endpoint)
            return
        if row > 0:
            # Those before it are rows; it is the first one of the next answer.
            batch = _first_rows(batch, row)
        first = int(batch.headers.queue_offset[0]) if len(batch) else None
        said = judge(
            head,
            reading.position,
            wanted=span.end,
            filtered=self._filtered,
            first_offset=first,
        )
        following = min(said.following, span.end)
        if row > 0:
            following = min(following, batch.next_offset)
        if said.kind is Kind.GONE:
            self._doubts.note(reading.number, endpoint, replace(said, following=following), 0)
            return
        if following > reading.position:
            self._settle(reading)
            if len(batch):
                following = self._rows(reading, batch)
            reading.position = following
        if said.kind is Kind.BEHIND and not reading.finished:
            self._doubts.note(reading.number, endpoint, said, 0)

    def _fault(self, batch: ReceivedBatch) -> tuple[int, str]:
        """The first record that is damaged, and how; -1 if none is."""
        headers = batch.headers
        if not headers.well_formed.all():
            return int(np.argmin(headers.well_formed)), "the record does not hold together"
        if not self._verify_crc:
            return -1, ""
        wrong = first_bad_crc(
            batch.records, headers.body_start, headers.body_length, headers.body_crc
        )
        return wrong, "the body is not the one that was sent: its CRC differs"

    def _note_damage(
        self, reading: _Reading, batch: ReceivedBatch, fault: str, endpoint: str
    ) -> None:
        """The node at `endpoint` has no whole message at the position, or at the first one behind
        it that its filter lets through."""
        at = reading.position
        if self._filtered and batch.headers.well_formed[0]:
            at = min(max(at, int(batch.headers.queue_offset[0])), reading.span.end - 1)
        said = Said(Kind.GONE, at + 1, batch.min_offset, batch.max_offset)
        reading.damage[endpoint] = (
            f"{reading.span.topic}/{reading.span.queue_id} offset {at}: {fault}"
        )
        self._doubts.note(reading.number, endpoint, said, 0)

    def _settle(self, reading: _Reading) -> None:
        self._doubts.settle(reading.number)
        reading.damage.clear()

    def _rows(self, reading: _Reading, batch: ReceivedBatch) -> int:
        """Takes the rows up to the span's end, and without a filter up to the first offset that is
        not there; where to continue."""
        end = min(batch.next_offset, reading.span.end)
        if not self._filtered:
            offsets = batch.headers.queue_offset
            expected = np.arange(reading.position, reading.position + len(offsets))
            holes = np.flatnonzero(offsets != expected)
            end = min(end, reading.position + (int(holes[0]) if len(holes) else len(offsets)))
        reading.held.append(batch.before(end) if batch.next_offset > end else batch)
        return end

    def _lost(self, reading: _Reading, gone: Said) -> None:
        text = (
            f"{reading.span.topic}/{reading.span.queue_id}: the messages {reading.position}.."
            f"{gone.following} are gone, the queue holds {gone.min_offset}..{gone.max_offset}"
        )
        if reading.damage:
            faults = dict.fromkeys(reading.damage.values())
            text = (
                f"{'; '.join(faults)}, on {', '.join(sorted(reading.damage))}, and no other node "
                "has it; verifyCrc=false takes a body as it is"
            )
        self._report(text)
        self._settle(reading)
        reading.position = gone.following

    def _report(self, text: str) -> None:
        if self._fail:
            raise DataLossError(f"{text}; failOnDataLoss=false reads what is left")
        logger.warning("data lost: %s", text)


def _first_rows(batch: ReceivedBatch, rows: int) -> ReceivedBatch:
    """The first `rows` messages, at least one and fewer than all; it continues behind them."""
    return replace(
        batch,
        next_offset=int(batch.headers.queue_offset[rows - 1]) + 1,
        records=batch.records[: int(batch.positions[rows])],
        sizes=batch.sizes[:rows],
    )

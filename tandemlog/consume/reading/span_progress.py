"""How far spans of queues are read, and in which order their messages continue.

    asked for    span 0  #####....    span 1  ##........    span 2  ..........
    handed on    all of span 0, then span 1, then span 2

Nodes are asked for several spans at once, and messages of a later span that arrive before its turn
are held back, `hold_bytes` at most. So their order depends only on the offsets: not on the size of
a response, nor on which node sent it and how far that node was. Spark's exactly-once writer relies
on this.

lost_messages.py decides what a response means: a node that is behind must be asked again, or
another one; messages are lost when every node that may have them lacks them. Where a message is
damaged on one node, the others are asked for it: it is lost only if no node has it whole. So the
bodies' CRCs are checked here, before a message counts as read. The spans are of one log
(cut_watch.py): where that was cut, they end. No I/O and no clock.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np

from ...errors import NodeUnavailableError
from ...format.columns.crcs import first_bad_crc
from ..received.received_batch import ReceivedBatch
from .cut_watch import TurnOffsets
from .lost_messages import Kind, Verdict, Verdicts, accept
from .positions import Queue
from .pulls import Place

_AT_ONCE: Final = 1_000
"""Queues of one request: a node takes a few times as many."""

OnLoss = Callable[[str, bool], None]
"""Called with a text about messages that are lost, and whether they are there but damaged; reading
continues behind them unless it raises."""


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """The messages start .. end-1 of a queue."""

    topic: str
    queue_id: int
    start: int
    end: int

    @property
    def queue(self) -> Queue:
        return self.topic, self.queue_id

    @property
    def count(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id} {self.start}..{self.end}"


@dataclass(slots=True)
class _Span:
    number: int
    queue: Queue
    position: int
    end: int
    held: list[ReceivedBatch] = field(default_factory=list)
    damage: dict[str, str] = field(default_factory=dict)
    """Of the next message: by endpoint of the node that sent it, what is wrong with it."""

    @property
    def finished(self) -> bool:
        return self.position >= self.end

    @property
    def name(self) -> str:
        return f"{self.queue[0]}/{self.queue[1]}"

    def __str__(self) -> str:
        return f"{self.name} at {self.position} of {self.end}"


class SpanProgress:
    """See the module. `filtered`: nodes leave messages of other tags out. `verify_crc`: a message
    whose body has another CRC than the one that was sent counts as damaged."""

    def __init__(
        self,
        spans: Iterable[QueueSpan],
        *,
        filtered: bool,
        on_loss: OnLoss,
        hold_bytes: int,
        verify_crc: bool,
    ) -> None:
        self._filtered = filtered
        self._on_loss = on_loss
        self._hold_bytes = hold_bytes
        self._verify_crc = verify_crc
        self._verdicts: Verdicts[int] = Verdicts()
        # in order
        self._open = [
            _Span(number, span.queue, span.start, span.end)
            for number, span in enumerate(spans)
            if span.count > 0
        ]
        self._asked: list[_Span] = []

    @property
    def done(self) -> bool:
        return not self._open

    def _next(self) -> list[_Span]:
        """The spans to read next: the first one alone while much is held back behind it."""
        unfinished = (each for each in self._open if not each.finished)
        held = sum(len(batch.records) for each in self._open for batch in each.held)
        return list(islice(unfinished, 1 if held >= self._hold_bytes else _AT_ONCE))

    def places(self) -> list[Place]:
        """What to ask for next; `accept` gets the answer to it."""
        self._asked = self._next()
        return [(each.queue, each.position) for each in self._asked]

    @property
    def most_messages(self) -> int:
        """That any queue of `places` still has to give."""
        return max((each.end - each.position for each in self._asked), default=0)

    @property
    def positions(self) -> TurnOffsets:
        """By queue, the offset below which the log must be the one that the spans are of."""
        ends: dict[Queue, tuple[int, int]] = {}
        for each in self._open:
            if not each.finished:
                ends[each.queue] = 1, max(each.end, ends.get(each.queue, (1, 0))[1])
        return ends

    def cut(self, queue: Queue, first: int) -> None:
        """The log was cut: from `first` on the queue has other messages. None of them is read."""
        for each in self._open:
            end = max(first, each.position)
            if each.queue == queue and end < each.end:
                text = f"{each.name}: the messages {end}..{each.end} are not in the log any more"
                self._on_loss(f"{text}, which was cut: other ones may have their offsets", False)
                each.end = end

    def accept(
        self,
        parts: Iterable[tuple[int, ReceivedBatch]],
        endpoint: str,
        deciders: Collection[str] | None,
        ends: Mapping[Queue, int] | None = None,
    ) -> bool:
        """Takes in the answer of the node at `endpoint` to `places`; returns whether anything
        moved. `deciders` are the endpoints of the nodes that may have what this one lacks, None if
        no node that knows can be asked. `ends`: see CutWatch.ends_of."""
        moved = False
        for index, batch in parts:
            span = self._asked[index]
            before = span.position
            if span.finished:
                continue  # the log was cut meanwhile
            self._accept_part(span, batch, endpoint, (ends or {}).get(span.queue))
            lost = self._verdicts.lost(span.number, deciders)
            if lost is not None:
                self._lost(span, lost)
            moved = moved or span.position > before
        return moved

    def pop_ready(self) -> list[ReceivedBatch]:
        """The messages whose turn it is; each is returned once."""
        batches: list[ReceivedBatch] = []
        while self._open:
            first = self._open[0]
            batches += first.held
            first.held = []
            if not first.finished:
                break
            del self._open[0]
        return batches

    def __str__(self) -> str:
        return ", ".join(str(each) for each in self._open[:5])

    def has_heard(self, endpoint: str) -> bool:
        """Whether that node has said that it lacks what is asked for."""
        return all(self._verdicts.of(each.number, endpoint) for each in self._next())

    def give_up(self, reason: str, master: str | None, ends: Mapping[Queue, int] | None) -> None:
        """Nothing has moved for long, so the master alone decides. Messages that it does not have
        were cut off, or are no longer there: they are lost, and skipped. `ends`: where the queues
        end by the master's word, None if it does not know that now: its answers may end before its
        log does. Raises NodeUnavailableError without a response of the master, or if it has the
        messages."""
        for each in self._next():
            verdict = self._verdicts.of(each.number, master) if master is not None else None
            if verdict is None or (verdict.kind is not Kind.GONE and ends is None):
                raise NodeUnavailableError(
                    f"{reason}: {each}; the nodes that answer are behind or lack messages, and "
                    "no master says that they are lost"
                )
            if verdict.kind is Kind.GONE:
                self._lost(each, verdict)
                continue
            assert ends is not None, "checked above"
            end = ends.get(each.queue, 0)
            if end > each.position:
                raise NodeUnavailableError(
                    f"{reason}: {each}, though the master's queue ends at {end}"
                )
            self._on_loss(
                f"{reason}: {each}, and the master's queue ends at {end}: its log was cut", False
            )
            each.position = each.end

    def _accept_part(
        self, span: _Span, batch: ReceivedBatch, endpoint: str, of_log: int | None
    ) -> None:
        if of_log is not None:
            batch = batch.before(of_log)
        row, fault = self._fault(batch)
        if row == 0:
            self._note_damage(span, batch, fault, endpoint)
            return
        if row > 0:
            # The messages before it count; it will be the first one of the next answer.
            batch = _first_rows(batch, row)
        accepted, verdict = accept(
            batch, span.position, end=span.end, of_log=of_log, filtered=self._filtered
        )
        if accepted is not None:
            self._verdicts.clear(span.number)
            span.damage.clear()
            span.position = accepted.next_offset
            if len(accepted):
                span.held.append(accepted)
        if verdict.kind is not Kind.THERE and not span.finished:
            next_offset = min(verdict.next_offset, span.end)
            verdict = replace(verdict, next_offset=next_offset)
            self._verdicts.note(span.number, endpoint, verdict, 0)

    def _fault(self, batch: ReceivedBatch) -> tuple[int, str]:
        """The row of the first damaged record, and what is wrong with it; -1 without one."""
        headers = batch.headers
        if not headers.well_formed.all():
            return int(np.argmin(headers.well_formed)), "the record does not hold together"
        if not self._verify_crc:
            return -1, ""
        wrong = first_bad_crc(
            batch.records, headers.body_start, headers.body_length, headers.body_crc
        )
        return wrong, "the body is not the one that was sent: its CRC differs"

    def _note_damage(self, span: _Span, batch: ReceivedBatch, fault: str, endpoint: str) -> None:
        """The node at `endpoint` has no whole message at the position, or at the first one behind
        it that its filter lets through. A record that does not hold together may lie anywhere
        before the next one that does: what else lies there is left out by the filter."""
        first = last = span.position
        if self._filtered and batch.headers.well_formed[0]:
            first = last = min(max(first, int(batch.headers.queue_offset[0])), span.end - 1)
        elif self._filtered:
            whole = np.flatnonzero(batch.headers.well_formed)
            behind = batch.headers.queue_offset[whole[0]] if len(whole) else batch.next_offset
            last = min(max(first, int(behind) - 1), span.end - 1)
        verdict = Verdict(Kind.GONE, last + 1, batch.min_offset, batch.max_offset)
        where = f"offset {first}" if first == last else f"offset {first} to {last}"
        span.damage[endpoint] = f"{span.name} {where}: {fault}"
        self._verdicts.note(span.number, endpoint, verdict, 0)

    def _lost(self, span: _Span, verdict: Verdict) -> None:
        text = (
            f"{span.name}: the messages {span.position}..{verdict.next_offset} are gone, the "
            f"queue holds {verdict.min_offset}..{verdict.max_offset}"
        )
        if span.damage:
            faults = dict.fromkeys(span.damage.values())
            nodes = ", ".join(sorted(span.damage))
            text = f"{'; '.join(faults)}, on {nodes}, and no other node has it"
        self._on_loss(text, bool(span.damage))
        self._verdicts.clear(span.number)
        span.damage.clear()
        span.position = verdict.next_offset


def _first_rows(batch: ReceivedBatch, rows: int) -> ReceivedBatch:
    """The first `rows` messages, at least one and fewer than all."""
    return replace(
        batch,
        next_offset=int(batch.headers.queue_offset[rows - 1]) + 1,
        records=batch.records[: int(batch.positions[rows])],
        sizes=batch.sizes[:rows],
    )

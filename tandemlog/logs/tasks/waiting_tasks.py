"""What waits in a log: records under way, and the later records that end them.

    span 1   | W1 | W2 | ..        task 1: rows W2            endings -
    span 2   | D1 | W3 | D3 | ..   task 2: rows -             endings D1       (W3 has come here)
                                   driver: rows W2 W3 .. that no ending of any task ends

    row      a message that waits for its time (W), or a half message (H) without an outcome
    ending   at a log offset: the record there ends the rows before it that have the same value

    kind of ending   value               written by
    NAMED            log offset          tandemlog, and a broker that commits: the header names it;
                                         the decision of a transaction
    KEY              topic and UNIQ_KEY  a broker: the message has come, is called back, waits on
    HALF_KEY         topic and UNIQ_KEY  a broker: the half is stored once more, committed, given up
    HALF_NUMBER      queue offset        an OP record
    TRANSACTION_ID   its id              any outcome of it, for all its halves, wherever they stand

These are the rules by which a node's folds follow its log. Here they are a join: a row ends if the
last ending with its value stands behind it, whichever task has found that one. Rows and endings
that meet in one task are joined there, so that what goes to the driver is what still waits, and
endings of rows in other tasks' spans.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.headers import HeaderColumns, gather_headers
from tandemlog.format.columns.property_columns import ValueColumn
from tandemlog.format.columns.property_layouts import find_properties
from tandemlog.format.columns.topics import topics_of
from tandemlog.format.constants import (
    DELAY_TOPICS,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    SERVICE_TOPIC,
    TAGS,
    TRANSACTION,
    TRANSACTION_CHECK_TIMES,
    UNDECIDED_TOPIC,
    UNIQ_KEY,
)
from tandemlog.format.delay.clock_step import TAG as DELAY_TAG
from tandemlog.format.delay.clock_step import step_of
from tandemlog.format.delay.ending import keys_of_broker, may_have_come, named_offsets
from tandemlog.format.delay.waiting_columns import (
    RECALLS,
    WAITS,
    WaitingColumns,
    hash_keys,
    hash_of_key,
    level_delays,
    parse_numbers,
    waiting_columns,
)
from tandemlog.format.files.queue_unit import DelayLevels
from tandemlog.format.record.record import Record, decode_record
from tandemlog.format.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from tandemlog.format.transaction.decision import TAG as TRANSACTION_TAG
from tandemlog.format.transaction.decision import Commit, TakenOver, said_by
from tandemlog.format.transaction.half import ended_halves

from ..audit.audit_span import Finding, damage_finding
from ..reading.log_source import LogSource
from ..reading.log_spans import Span
from ..reading.span_scan import DamagedPiece, Piece, SpanScan

DELAY, HALF = range(2)
"""Kinds of rows."""
NAMED, KEY, HALF_KEY, HALF_NUMBER, TRANSACTION_ID = range(5)
"""Kinds of endings."""
_OUTCOMES: Final = (NAMED, HALF_NUMBER, TRANSACTION_ID)
"""By these a transaction has an outcome; a half that is stored once more has none."""
_ANYWHERE: Final = (1 << 63) - 1

ROW: Final = np.dtype(
    [
        ("kind", "u1"),
        ("log_offset", "<i8"),
        ("topic", "O"),
        ("queue_offset", "<i8"),
        ("store_timestamp", "<i8"),
        ("due_ms", "<i8"),
        ("counted", "?"),
        ("key", "<i8"),
        ("real_topic", "O"),
        ("real_queue_id", "<i8"),
        ("uniq_key", "O"),
        ("group", "O"),
        ("transaction_id", "O"),
        ("transaction_key", "<i8"),
    ]
)
"""A record under way; times in ms. `due_ms` and `counted` (from its store time) are of a message
that comes later, `group` (of producers) and `transaction_id` of a half. `key` is the hash of real
topic and UNIQ_KEY, `transaction_key` that of the transaction's id, 0 for one of RocketMQ."""
ENDING: Final = np.dtype([("kind", "u1"), ("value", "<i8"), ("log_offset", "<i8")])

_Rows = NDArray[np.int64]
_NAMES: Final = (REAL_TOPIC, REAL_QUEUE_ID, UNIQ_KEY, PRODUCER_GROUP, TRANSACTION)


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """Spans to look through; `delay_levels` are the store's."""

    source: LogSource
    spans: tuple[Span, ...]
    delay_levels: str


@dataclass(slots=True)
class WaitingPart:
    """What a task has found: ROW[n] that still wait as far as it can see, ENDING[m] for others,
    where and by how many ms the clock was set, where it was said below which queue offset halves
    have ended on a broker, how many records began to wait, the newest store time (ms)."""

    rows: NDArray[np.void]
    endings: NDArray[np.void]
    steps: list[tuple[int, int]] = field(default_factory=list)
    taken_over: list[tuple[int, int]] = field(default_factory=list)
    began: int = 0
    newest_ms: int = 0
    findings: list[Finding] = field(default_factory=list)


def scan_waiting(task: WaitingTask) -> WaitingPart:
    """What an executor does. Raises OSError, FetchError."""
    found = WaitingPart(np.empty(0, ROW), np.empty(0, ENDING))
    levels = DelayLevels(task.delay_levels)
    with closing(task.source.connect()) as log:
        for span in task.spans:
            for part in SpanScan(log, span, check_crc=False):
                if isinstance(part, DamagedPiece):
                    findings = found.findings
                    findings.append(damage_finding(log, task.source.files, span, part))
                else:
                    _take(found, _Window(part, levels), task.spans)
    return found


def _take(found: WaitingPart, window: "_Window", spans: Sequence[Span]) -> None:
    rows = np.concatenate((window.delays(), window.halves()))
    found.began += len(rows)
    found.newest_ms = max(found.newest_ms, int(window.headers.store_timestamp.max()))
    endings = window.endings()
    endings.append(window.said(found.steps, found.taken_over))
    found.rows, found.endings = joined(
        np.concatenate((found.rows, rows)), np.concatenate((found.endings, *endings))
    )
    found.endings = _of_others(found.endings, spans)


def joined(
    rows: NDArray[np.void], endings: NDArray[np.void]
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """The rows that no ending ends, and the last endings, with those of whole transactions that
    follow from the rows."""
    endings = _last(endings)
    decided = rows["transaction_key"][_ended(rows, endings, _OUTCOMES)]
    more = np.zeros(np.count_nonzero(decided), ENDING)
    more["kind"], more["value"] = TRANSACTION_ID, decided[decided != 0]
    more["log_offset"] = _ANYWHERE
    endings = _last(np.concatenate((endings, more)))
    return _chosen(rows, ~_ended(rows, endings, range(TRANSACTION_ID + 1))), endings


def _of_others(endings: NDArray[np.void], spans: Sequence[Span]) -> NDArray[np.void]:
    """Without those that name a record in these spans: it stands before, and has been joined."""
    value = endings["value"]
    kept = np.ones(len(endings), np.bool_)
    for span in spans:
        kept &= (endings["kind"] != NAMED) | (value < span.start) | (value >= span.end)
    return _chosen(endings, kept)


def _chosen(rows: NDArray[np.void], which: NDArray[np.bool_]) -> NDArray[np.void]:
    chosen: NDArray[np.void] = rows[which]
    return chosen


def _last(endings: NDArray[np.void]) -> NDArray[np.void]:
    """The last one of each kind and value, by kind and value."""
    ordered = endings[np.lexsort((endings["log_offset"], endings["value"], endings["kind"]))]
    last = np.ones(len(ordered), np.bool_)
    last[:-1] = ordered["value"][1:] != ordered["value"][:-1]
    last[:-1] |= ordered["kind"][1:] != ordered["kind"][:-1]
    return _chosen(ordered, last)


def _ended(
    rows: NDArray[np.void], endings: NDArray[np.void], kinds: Sequence[int]
) -> NDArray[np.bool_]:
    """Which of the rows are ended by these kinds of endings, the last ones."""
    done = np.zeros(len(rows), np.bool_)
    for kind, name, of_rows in (
        (NAMED, "log_offset", (DELAY, HALF)),
        (KEY, "key", (DELAY,)),
        (HALF_KEY, "key", (HALF,)),
        (HALF_NUMBER, "queue_offset", (HALF,)),
        (TRANSACTION_ID, "transaction_key", (HALF,)),
    ):
        mine = endings[endings["kind"] == kind]
        if not len(mine) or kind not in kinds:
            continue
        values = rows[name]
        place = np.minimum(np.searchsorted(mine["value"], values), len(mine) - 1)
        hit = (mine["value"][place] == values) & (mine["log_offset"][place] > rows["log_offset"])
        hit &= np.isin(rows["kind"], of_rows)
        if name.endswith("key"):
            hit &= values != 0
        done |= hit
    return done


class _Window:
    """The records of one piece."""

    def __init__(self, piece: Piece, levels: DelayLevels) -> None:
        self._piece = piece
        self._levels = levels
        self._data = piece.data
        self.headers = piece.headers
        self._topics, self._numbers = topics_of(piece.data, piece.headers)

    def _in(self, *topics: str) -> _Rows:
        chosen = np.array([topic in topics for topic in self._topics], np.bool_)
        if not chosen.any():
            return np.empty(0, np.int64)
        return chosen[self._numbers].nonzero()[0]

    def _headers_of(self, rows: _Rows) -> HeaderColumns:
        walk = self._piece.walk
        return gather_headers(self._data, walk.positions[rows], walk.sizes[rows])

    def _properties(self, headers: HeaderColumns, *names: str) -> list[ValueColumn]:
        return find_properties(
            self._data,
            headers.properties_start,
            headers.properties_length,
            [name.encode() for name in names],
        )

    def _texts(self, values: ValueColumn) -> list[str]:
        pairs = zip(values[0].tolist(), values[1].tolist(), strict=True)
        pieces = (self._data[start : start + max(length, 0)].tobytes() for start, length in pairs)
        return [each.decode("utf-8", "replace") for each in pieces]

    # ---- what begins to wait

    @cached_property
    def _delays(self) -> _Rows:
        return self._in(*DELAY_TOPICS)

    @cached_property
    def _waiting(self) -> WaitingColumns:
        """Of the records of the delay topics."""
        headers, scheduled = self._headers_of(self._delays), self._scheduled(self._delays)
        return waiting_columns(
            self._data,
            headers,
            scheduled,
            headers.store_timestamp + level_delays(headers.queue_id, scheduled, self._levels),
            headers.store_timestamp,
        )

    def delays(self) -> NDArray[np.void]:
        if not len(self._delays):
            return np.empty(0, ROW)
        found = self._waiting
        made = self._rows(DELAY, self._delays, self._headers_of(self._delays))
        made["due_ms"], made["counted"] = found.due_ms, found.counted
        return _chosen(made, found.kind == WAITS)

    def _scheduled(self, rows: _Rows) -> NDArray[np.bool_]:
        scheduled = np.array([topic == SCHEDULE_TOPIC for topic in self._topics], np.bool_)
        mine: NDArray[np.bool_] = scheduled[self._numbers[rows]]
        return mine

    def halves(self) -> NDArray[np.void]:
        rows = self._in(HALF_TOPIC)
        if not len(rows):
            return np.empty(0, ROW)
        made = self._rows(HALF, rows, self._headers_of(rows))
        told = (made["real_topic"] != "") & (made["real_queue_id"] >= 0)
        return _chosen(made, told & (made["transaction_id"] != ""))

    def _rows(self, kind: int, rows: _Rows, headers: HeaderColumns) -> NDArray[np.void]:
        topic, queue, key, group, transaction = self._properties(headers, *_NAMES)
        made = np.zeros(len(rows), ROW)
        made["kind"] = kind
        made["log_offset"] = headers.physical_offset
        made["topic"] = [self._topics[number] for number in self._numbers[rows].tolist()]
        made["queue_offset"] = headers.queue_offset
        made["store_timestamp"] = headers.store_timestamp
        made["key"] = hash_keys(self._data, topic, key)
        made["real_topic"] = self._texts(topic)
        made["real_queue_id"] = parse_numbers(self._data, *queue)
        made["uniq_key"] = self._texts(key)
        made["group"] = self._texts(group)
        if kind == HALF:
            made["transaction_id"] = [
                own or other
                for own, other in zip(self._texts(transaction), made["uniq_key"], strict=True)
            ]
            made["transaction_key"] = hash_keys(self._data, _no_text(len(rows)), transaction)
        return made

    # ---- what ends it

    def endings(self) -> list[NDArray[np.void]]:
        prepared = self.headers.prepared_transaction_offset
        naming = prepared.nonzero()[0]
        found = [self._ending(NAMED, naming, named_offsets(prepared[naming]))]
        if may_have_come(self._data.tobytes()):
            found += [self._came(), self._halves_again()]
        found += [self._committed(), self._ops()]
        return found

    def _ending(self, kind: int, rows: _Rows, values: _Rows) -> NDArray[np.void]:
        made = np.empty(len(rows), ENDING)
        made["kind"], made["value"] = kind, values
        made["log_offset"] = self.headers.physical_offset[rows]
        return made

    def _came(self) -> NDArray[np.void]:
        """What a broker wrote of messages that come later; see ending.py."""
        headers, delays = self.headers, self._delays
        ends = np.ones(headers.count, np.bool_)
        recalls = np.zeros(headers.count, np.bool_)
        rolled = np.empty(0, np.int64)
        if len(delays):
            kind = self._waiting.kind
            ends[delays] = recalls[delays] = kind == RECALLS
            rolled = delays[(kind == WAITS) & self._waiting.rolled]
        ends &= headers.prepared_transaction_offset == 0
        rolled = rolled[headers.prepared_transaction_offset[rolled] == 0]
        rows = ends.nonzero()[0]
        keys = keys_of_broker(self._data, self._headers_of(rows), recalls[rows])
        topic, key = self._properties(self._headers_of(rolled), REAL_TOPIC, UNIQ_KEY)
        rows = np.concatenate((rows, rolled))
        values = np.concatenate((keys, hash_keys(self._data, topic, key)))
        return self._ending(KEY, rows[values != 0], values[values != 0])

    def _halves_again(self) -> NDArray[np.void]:
        """Halves that a broker stored once more, or gave up: those before with the same key."""
        rows = self._in(HALF_TOPIC, UNDECIDED_TOPIC)
        topic, key, times = self._properties(
            self._headers_of(rows), REAL_TOPIC, UNIQ_KEY, TRANSACTION_CHECK_TIMES
        )
        again = times[1] > 0
        again |= np.isin(rows, self._in(UNDECIDED_TOPIC))
        values = hash_keys(self._data, topic, key)
        again &= values != 0
        return self._ending(HALF_KEY, rows[again], values[again])

    def _committed(self) -> NDArray[np.void]:
        """A broker's commit may name an older half than the one that it stored once more."""
        bits = self.headers.sys_flag & TRANSACTION_MASK
        rows = (bits == TRANSACTION_COMMIT).nonzero()[0]
        headers = self._headers_of(rows)
        (key,) = self._properties(headers, UNIQ_KEY)
        topic = headers.topic_start, headers.topic_length.astype(np.int64)
        values = hash_keys(self._data, topic, key)
        return self._ending(HALF_KEY, rows[values != 0], values[values != 0])

    def _ops(self) -> NDArray[np.void]:
        rows = self._in(OP_HALF_TOPIC).tolist()
        pairs = [(row, number) for row in rows for number in ended_halves(self._record(row))]
        places, values = np.array(pairs, np.int64).reshape(-1, 2).T
        return self._ending(HALF_NUMBER, places, values)

    def said(
        self, steps: list[tuple[int, int]], taken_over: list[tuple[int, int]]
    ) -> NDArray[np.void]:
        """What the services of a node said: endings by decisions; what else there is becomes part
        of the two lists, with its log offset."""
        rows = self._in(SERVICE_TOPIC)
        (tags,) = self._properties(self._headers_of(rows), TAGS)
        found: list[NDArray[np.void]] = [np.empty(0, ENDING)]
        for row, tag in zip(rows.tolist(), self._texts(tags), strict=True):
            log_offset = int(self.headers.physical_offset[row])
            if tag == DELAY_TAG and (step := step_of(self._bytes(row))):
                steps.append((step.before, step.step_ms))
            elif tag == TRANSACTION_TAG:
                said = said_by(self._record(row))
                if isinstance(said, Commit):
                    found.append(_decided(said, log_offset))
                elif isinstance(said, TakenOver):
                    taken_over.append((log_offset, said.ended_below))
        return np.concatenate(found)

    def _bytes(self, row: int) -> bytes:
        start = int(self._piece.walk.positions[row])
        return self._data[start : start + int(self._piece.walk.sizes[row])].tobytes()

    def _record(self, row: int) -> Record:
        return decode_record(self._bytes(row), check_crc=False)


def _decided(said: Commit, log_offset: int) -> NDArray[np.void]:
    """The endings of a decision."""
    key = hash_of_key("", said.transaction_id)
    return np.array(
        [
            *((NAMED, half, log_offset) for half in said.halves),
            (TRANSACTION_ID, key, _ANYWHERE),
        ],
        ENDING,
    )


def _no_text(count: int) -> ValueColumn:
    return np.zeros(count, np.int64), np.zeros(count, np.int64)


def without_taken_over(
    rows: NDArray[np.void], taken_over: Sequence[tuple[int, int]]
) -> NDArray[np.void]:
    """The rows without halves that had ended on the broker whose store was taken over."""
    kept = np.ones(len(rows), np.bool_)
    for log_offset, ended_below in taken_over:
        mine = (rows["kind"] == HALF) & (rows["log_offset"] < log_offset)
        kept &= ~(mine & (rows["queue_offset"] < ended_below))
    return _chosen(rows, kept)


def with_steps(rows: NDArray[np.void], steps: Sequence[tuple[int, int]]) -> NDArray[np.void]:
    """The rows, due times shifted where the clock was set behind them."""
    moved = rows.copy()
    for log_offset, step_ms in steps:
        mine = rows["counted"] & (rows["log_offset"] < log_offset)
        moved["due_ms"][mine] += step_ms
    return moved

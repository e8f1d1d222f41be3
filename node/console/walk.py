"""A page of a topic's messages: from places in its queues, back or forward, in the log's order.

    queue 0   .. 7 8 9 │        each queue is read in pieces, and waits with what was read;
    queue 3      .. 4 5 │       of those that wait, the next one in the log goes to the page
                        '── places: an offset between two messages, by queue

What was read and did not get onto the page is read again for the next one: the places behind the
page are those of what is on it. Without time left the page has what was found until then, and the
places say how far that was; with a filter it may be empty, and the next page continues there. A
slave may lack the last messages of a queue: forward the page ends there, and the queue has not
ended; back there would be a hole in it, so there is an error. Records are kept as rows: a page of
large bodies holds one piece at a time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.reading.positions import QueueRange
from tandemlog.errors import UnavailableError

from .shown_message import row_of

FIRST_PIECE = 8
MOST_PIECE = 256
FIRST_FILTERED = 1_000
MOST_FILTERED = 20_000
PIECE_BYTES = 1 << 20
"""Of one answer; a larger message comes alone."""
AT_ONCE = 4
TIME_S = 0.6
"""After this the page is what was found."""
SOON_MS = 200
"""How long a slave has for a message that the master has."""
PIECE_TIME_S = 0.1
"""A piece that took longer is followed by a smaller one."""


@dataclass(frozen=True, slots=True)
class Page:
    """`rows` in the order of the log, the newest first where it was read back. `before` and
    `behind`: the places at its two ends; `looked_at`: messages, those that the filter left out
    among them. `ended`: there is nothing more in this direction."""

    rows: Sequence[Mapping[str, Any]]
    before: Mapping[int, int]
    behind: Mapping[int, int]
    looked_at: int
    ended: bool


@dataclass(slots=True)
class _Lane:
    """A queue. `at`: up to where it was read; `rows`: what waits, the next one first. `short`: this
    node does not have the next message yet."""

    queue_id: int
    low: int
    high: int
    at: int
    piece: int
    short: bool = False
    rows: deque[Mapping[str, Any]] = field(default_factory=deque)


class Walk:
    """See the module. `where`: a filter, or empty."""

    def __init__(
        self,
        consumer: AsyncConsumer,
        topic: str,
        places: Mapping[int, int],
        ranges: Mapping[int, QueueRange],
        *,
        back: bool,
        where: str = "",
        tags: str = "",
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._back = back
        self._where = where or None
        self._tags = tags or None
        self._narrow = bool(where or tags)
        self._began = time.monotonic()
        self._read_some = False
        self._turns = asyncio.Semaphore(AT_ONCE)
        piece = FIRST_FILTERED if self._narrow else FIRST_PIECE
        self._lanes = [
            _Lane(
                queue_id,
                found.min_offset,
                found.max_offset,
                min(max(places.get(queue_id, 0), found.min_offset), found.max_offset),
                piece,
            )
            for queue_id, found in sorted(ranges.items())
        ]
        self._begun = {lane.queue_id: lane.at for lane in self._lanes}

    async def page(self, count: int) -> Page:
        """At most `count` messages. Raises as AsyncConsumer.pull, and UnavailableError where the
        way back begins at messages that this node does not have yet."""
        rows: list[Mapping[str, Any]] = []
        while len(rows) < count:
            hungry = [
                each for each in self._lanes if not (each.rows or each.short or self._at_end(each))
            ]
            if hungry and not self._late:
                await asyncio.gather(*map(self._fill, hungry))
                continue
            ready = [each for each in self._lanes if each.rows]
            if not ready:
                break
            choose = max if self._back else min
            lane = choose(ready, key=lambda each: int(each.rows[0]["physical_offset"]))
            rows.append(lane.rows.popleft())
        rows.sort(key=lambda row: int(row["physical_offset"]), reverse=self._back)
        ends = {lane.queue_id: self._place(lane) for lane in self._lanes}
        before, behind = (ends, self._begun) if self._back else (self._begun, ends)
        looked_at = sum(behind[queue] - before[queue] for queue in ends)
        ended = all(self._at_end(lane) and not lane.rows for lane in self._lanes)
        return Page(rows, before, behind, looked_at, ended)

    @property
    def _late(self) -> bool:
        """Never before a piece was read: each page comes further."""
        return self._read_some and time.monotonic() - self._began > TIME_S

    def _at_end(self, lane: _Lane) -> bool:
        return lane.at <= lane.low if self._back else lane.at >= lane.high

    def _place(self, lane: _Lane) -> int:
        """Between what is on the page and what is not."""
        if not lane.rows:
            return lane.at
        offset = int(lane.rows[0]["queue_offset"])
        return offset + 1 if self._back else offset

    async def _fill(self, lane: _Lane) -> None:
        """One piece more."""
        async with self._turns:
            if self._late:
                return
            begun = time.monotonic()
            if self._back:
                begin, end = max(lane.low, lane.at - lane.piece), lane.at
            else:
                begin, end = lane.at, min(lane.high, lane.at + lane.piece)
            found, reached = await self._read(lane.queue_id, begin, end)
            self._read_some = True
            lane.short = reached < end
            if lane.short and self._back:
                raise UnavailableError(
                    f"this node does not have them yet: its queue {lane.queue_id} of "
                    f"{self._topic!r} ends at offset {reached} and not at {end}; try again when it "
                    "has caught up, or ask another node"
                )
            lane.rows.extend(reversed(found) if self._back else found)
            lane.at = begin if self._back else reached
            took = time.monotonic() - begun
        most = MOST_FILTERED if self._narrow else MOST_PIECE
        lane.piece = min(lane.piece * 2, most) if took < PIECE_TIME_S else max(lane.piece // 4, 1)

    async def _read(
        self, queue_id: int, begin: int, end: int
    ) -> tuple[list[Mapping[str, Any]], int]:
        """The rows of the messages begin .. end - 1, as far as this node has them, and how far
        that is."""
        rows: list[Mapping[str, Any]] = []
        at, wait_ms = begin, 0
        while at < end:
            batch = await self._consumer.pull(
                self._topic,
                queue_id,
                at,
                max_messages=min(end - at, MOST_PIECE),
                max_bytes=PIECE_BYTES,
                where=self._where,
                tags=self._tags,
                wait_ms=wait_ms,
            )
            rows += map(row_of, batch.before(end))
            if batch.next_offset > at:
                at, wait_ms = min(batch.next_offset, end), 0
            elif wait_ms:
                break
            else:
                wait_ms = SOON_MS  # a slave is a moment behind all the time
        return rows, at

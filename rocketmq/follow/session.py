"""The slave's side of one HA connection: a machine without I/O, clock or loop.

    COMPARING ──what is here equals what came──▶ FOLLOWING ──silent, lost──▶ CLOSED
        └──────it does not (LogsDifferError)──────────────────────────────────┘

The broker sends from `Ask.start` on. What lies below our end is compared, what comes behind it is
stored. Nothing is acknowledged before the comparison is over but where it starts, which keeps the
broker from closing: it ends a connection on which it has heard nothing for 20 s.

A broker reads 0 as "from the begin of your last file". So a log that begins at 0 is asked for from
1 on, and its first byte is told from the bytes behind it (first_byte.py). Only the first number
asks; those after it acknowledge, and a broker of 4.9 closes on one above its end. So an empty log
is asked for with 1 and acknowledged with 0, but not before the broker was heard: of two numbers
that wait for it, it reads the last one as what is asked for.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tandemlog.format.record.first_byte import first_byte

from ..wire.frames import Run
from .comparison import Ask

HEARTBEAT_S = 5.0
SILENT_S = 20.0
"""RocketMQ's defaults of haSendHeartbeatInterval and haHousekeepingInterval."""


class FollowState(Enum):
    """See the module."""

    COMPARING = "comparing"
    FOLLOWING = "following"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Send:
    """An i64 to the broker."""

    offset: int


@dataclass(frozen=True, slots=True)
class Compare:
    """The log here must have these bytes at `offset`."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Append:
    """Store these bytes at `offset`; they are of one log file."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Differs:
    """The broker's log ends at `offset`, below the end of the log here."""

    offset: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Everything before it is equal: from here on the log here continues the broker's."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """End the connection."""

    reason: str


Work: TypeAlias = Compare | Append | Differs | Compared
Action: TypeAlias = Send | Work | Disconnect


class FollowSession:
    """See the module. `own_end` is the end of the log here, `file_size` that of its files."""

    def __init__(self, ask: Ask, own_end: int, file_size: int, now: float) -> None:
        self.state = FollowState.COMPARING
        self.ask = ask
        self.own_end = own_end
        self.durable = 0
        self.received = ask.start
        self.asked = max(ask.start, 1)
        self._file_size = file_size
        self._head = b""
        self._heard_at = self._sent_at = now
        self._heard = False

    def start(self, now: float) -> list[Action]:
        """What to do once the connection is open. `now` is monotonic seconds, here as below."""
        self._sent_at = now
        return [Send(self.asked), *self._compared()]

    def receive(self, run: Run, now: float) -> list[Action]:
        """Log bytes, or a heartbeat, have come: what to do, in that order."""
        if self.state is FollowState.CLOSED:
            return []
        self._heard_at, self._heard = now, True
        data = run.data
        if self.received == 0 and data:
            data = self._with_first_byte(data)
        actions: list[Action] = []
        at = 0
        while at < len(data):
            piece = data[at : at + self._left(len(data) - at)]
            at += len(piece)
            if self.received < self.own_end:
                actions.append(Compare(self.received, piece))
            else:
                actions.append(Append(self.received, piece))
            self.received += len(piece)
            if self.received in (self.ask.end, self.own_end):
                actions += self._compared()
        return actions

    def stored(self, durable: int, now: float) -> list[Action]:
        """The log is durable here up to `durable`, and was compared: acknowledge that."""
        if self.state is FollowState.CLOSED:
            return []
        self.state = FollowState.FOLLOWING
        if durable <= self.durable:
            return []
        self.durable = durable
        return [self._send(now)]

    def tick(self, now: float) -> list[Action]:
        """A heartbeat where one is due; the end of a connection whose broker is silent."""
        if self.state is FollowState.CLOSED:
            return []
        silent = now - self._heard_at
        if silent > SILENT_S:
            self.state = FollowState.CLOSED
            return [Disconnect(f"nothing came from the broker for {silent:.0f} s")]
        due = now - self._sent_at >= HEARTBEAT_S and (self._heard or self.ask.start == self.asked)
        return [self._send(now)] if due else []

    def stand_still(self, now: float) -> None:
        """Nothing is read on purpose, so the broker's silence is our own."""
        self._heard_at = now

    def _send(self, now: float) -> Send:
        self._sent_at = now
        return Send(max(self.durable, self.ask.start))

    def _compared(self) -> list[Action]:
        """What follows once everything is compared that can be."""
        if self.received == self.own_end:
            return [Compared()]
        return [Differs(self.received)] if self.received == self.ask.end else []

    def _left(self, count: int) -> int:
        """How many of the next `count` bytes belong together: no file's end and no end of a
        comparison lies inside them."""
        ends = [self.received - self.received % self._file_size + self._file_size]
        ends += [end for end in (self.ask.end, self.own_end) if end > self.received]
        return min(count, min(ends) - self.received)

    def _with_first_byte(self, data: bytes) -> bytes:
        """The log from its byte 0 on, as far as it is here; empty until that byte can be told."""
        self._head += data
        first = first_byte(self._head)
        if first is None:
            return b""
        head, self._head = self._head, b""
        return first + head

"""One slave broker as its master sees it: a machine without I/O, clock or loop.

    WAITING ──its end, accepted──▶ STREAMING ──silent, refused, deleted under it──▶ CLOSED
       └──────its end, refused────────────────────────────────────────────────────────┘

    acked  <=  sent  <=  limit (what may be sent: all that is confirmed, or all that is committed)
    └ window_bytes ┘

The first number that comes is where the slave's log ends, 0 if it has none; each further number is
what it holds by then. The wire has no way to refuse: a refusal ends the connection, and writes a
line to our log. A heartbeat carries the next byte's offset, which a slave compares with its own
end.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from .framing import Cut, Place

HEARTBEAT_S: Final = 5.0
"""Silence after which the next offset is sent alone; a slave gives up after 20 s."""
SILENCE_S: Final = 20.0
"""Silence after which the slave is taken for dead; an idle one speaks every 5 s."""
BATCH_BYTES: Final = 1 << 20
"""The log bytes that are read, and sent, at a time."""
WINDOW_BYTES: Final = 64 << 20
"""The log bytes that are sent and not yet acknowledged."""


@dataclass(frozen=True, slots=True)
class SendLog:
    """Read up to `length` log bytes at `offset`, cut them into frames, send these, then call
    `sent_frames`."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """A header of size 0."""

    offset: int


Action: TypeAlias = SendLog | SendHeartbeat


class SlaveSession:
    """See the module. `file_size` is that of the log's files; `fault`: it was closed because the
    slave and this log do not fit together."""

    def __init__(self, address: str, file_size: int, now: float) -> None:
        self.address = address
        self.place = Place(0)
        self.streaming = False
        self.sent = 0
        self.acked = 0
        self.heard_at = now
        self.sent_at = now
        self.caught_up_at = now
        self.closed_reason = ""
        self.fault = False
        self._greeted = False
        self._file_size = file_size
        self._midway: dict[int, int] = {}
        self._asked_end = self._nothing_whole_below = -1

    @property
    def closed(self) -> bool:
        return bool(self.closed_reason)

    @property
    def held(self) -> int:
        """Up to where the slave holds whole records."""
        return self._midway.get(self.acked, self.acked)

    def greet(
        self,
        offset: int,
        begin: int,
        end: int,
        now: float,
        *,
        most: int = 1 << 62,
        refused: int | None = None,
    ) -> int | None:
        """The first number came, and the log is `begin` .. `end` - 1. Returns from where on the
        slave wants the log; None if it is refused. `most`: no slave of this log can hold more, as
        this term began there, or sent it so much; `refused`: where its log ended when it was found
        to be another one."""
        self.heard_at = now
        self._greeted = True
        if offset == 0:
            return begin
        where = f"{self.address}: the slave's log ends at {offset}"
        way_out = (
            "move the slave's store directory away and start it again, then it takes the whole log"
        )
        if refused is not None:
            self._refuse(
                f"{where}; it was refused with a log that ended at {refused}, which is not this "
                f"node's: {way_out}"
            )
        elif offset > end:
            self._refuse(
                f"{where}, this node's at {end}: its log is another one, or this node has lost the "
                f"end of its own. If what this node has is right, {way_out}"
            )
        elif offset > most:
            self._refuse(
                f"{where}, but this node began its term at {most} or below, and has sent it no "
                "more: its log is another one, or this node has lost the end of its own. If what "
                f"this node has is right, {way_out}. If only the slave's address has changed, "
                "restart this node"
            )
        elif offset < begin:
            self._refuse(
                f"{where}, but retention has deleted this node's log below {begin}: {way_out}"
            )
        return None if self.closed else offset

    def start(self, place: Place | None, offset: int, now: float) -> None:
        """`place` is what this node's log has at the `offset` that `greet` has returned."""
        if place is None:
            self._refuse(
                f"{self.address}: the slave's log ends at {offset}, inside of a record of this "
                "node's log. Restart the slave, which cuts its log to whole records; if it is "
                "refused again, its log is another one: move its store directory away and start "
                "it again, then it takes the whole log"
            )
            return
        if place.rest:
            self._midway[offset] = place.record
        self.place = place
        self.streaming = True
        self.sent = self.acked = offset
        self.sent_at = now

    def acknowledge(self, offset: int, now: float) -> None:
        """The slave holds everything below `offset`. An empty one repeats its 0 at first."""
        self.heard_at = now
        if offset > self.sent:
            self._refuse(
                f"{self.address}: the slave acknowledged {offset}, but was sent the log up to "
                f"{self.sent}: its log is not this node's, or it is no RocketMQ slave"
            )
        elif offset > self.acked:
            self.acked = offset
            self._midway = {end: at for end, at in self._midway.items() if end >= offset}

    def next(self, limit: int, begin: int, now: float) -> Action | None:
        """What to send now; None: nothing. `limit` is the end of what may be sent, `begin` that of
        the log."""
        if self.closed or not self.streaming:
            return None
        if self.sent < begin:
            self._refuse(
                f"{self.address}: retention has deleted the log below {begin}, but the slave has "
                f"it only up to {self.sent}: move its store directory away and start it again"
            )
            return None
        if self.acked >= limit:
            self.caught_up_at = now
        file_left = self._file_size - self.sent % self._file_size
        length = min(limit - self.sent, file_left, BATCH_BYTES)
        self._asked_end = self.sent + length
        fits = self.sent - self.acked <= WINDOW_BYTES - length
        if length > 0 and fits and self._asked_end != self._nothing_whole_below:
            return SendLog(self.sent, length)
        if now - self.sent_at >= HEARTBEAT_S:
            self.sent_at = now
            return SendHeartbeat(self.sent)
        return None

    def sent_frames(self, frames: Cut, now: float) -> None:
        """`frames` are being sent. If there are none, what may be sent holds no whole record."""
        if not frames.ends:
            self._nothing_whole_below = self._asked_end
            return
        self.place = frames.place
        self._midway.update(frames.midway)
        self.sent, self.sent_at = frames.ends[-1], now

    def tick(self, now: float) -> None:
        """Close a session whose slave is silent."""
        if self._greeted and not self.streaming:
            return  # its place in the log is being searched; what it sends meanwhile waits
        if now - self.heard_at > SILENCE_S:
            what = "the slave sent nothing" if self.streaming else "nothing was asked for"
            self.close(f"{self.address}: {what} for {SILENCE_S:g} s")

    def _refuse(self, reason: str) -> None:
        self.fault = self.fault or not self.closed
        self.close(reason)

    def close(self, reason: str) -> None:
        """End the session; of several reasons the first one stays."""
        self.closed_reason = self.closed_reason or reason

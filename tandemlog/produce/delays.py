"""Messages that come later, as a producer sends them: when, and what the result says of it.

    send(message, delay=...)        ─▶ Later ─▶ Framer.waiting ─▶ the waiting record, and
    send(message, deliver_at=...)                                 Delayed: kept for the result
    answer of the master            ─▶ deliver_at_ms, recall_handle

The waiting record goes to a topic of the store. The message itself gets its queue offset when it
comes.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from ..errors import InvalidMessageError
from ..format.delay.framing import after, at
from ..format.delay.handle import handle_of
from ..format.delay.timing import checked_time
from ..format.errors import FormatError


@dataclass(frozen=True, slots=True)
class Later:
    """When a message is to come: so many ms after it is stored, or at a time (ms)."""

    delay_ms: int | None = None
    due_ms: int | None = None

    def properties(self, topic: str, queue_id: int, now_ms: int) -> dict[str, str]:
        """The properties more of a message to this queue."""
        if self.due_ms is not None:
            return at(topic, queue_id, self.due_ms)
        assert self.delay_ms is not None
        return after(topic, queue_id, self.delay_ms, now_ms)


def later_of(delay: timedelta | None, deliver_at: datetime | int | None) -> Later | None:
    """What the two arguments of a send say; None if the message is to come at once. Raises
    InvalidMessageError."""
    if delay is not None and deliver_at is not None:
        raise InvalidMessageError("delay and deliver_at: give one of them", field="delay")
    if deliver_at is not None:
        return Later(due_ms=_checked("deliver_at", "the time", _time_ms(deliver_at)))
    if delay is None:
        return None
    if not isinstance(delay, timedelta):
        raise InvalidMessageError(
            f"delay {delay!r}: it must be a timedelta, such as timedelta(minutes=5)",
            field="delay",
        )
    # not by total_seconds(): a float rounds the last millisecond of a long delay
    delay_ms = delay // timedelta(milliseconds=1)
    return Later(delay_ms=_checked("delay", "a delay of", delay_ms)) if delay else None


def _time_ms(deliver_at: datetime | int) -> int:
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            raise InvalidMessageError(
                f"deliver_at {deliver_at.isoformat()} has no time zone: give "
                "datetime(..., tzinfo=UTC), or deliver_at.astimezone() for local time",
                field="deliver_at",
            )
        return -(-(deliver_at - _EPOCH) // timedelta(milliseconds=1))
    if isinstance(deliver_at, bool) or not isinstance(deliver_at, int):
        raise InvalidMessageError(
            f"deliver_at {deliver_at!r}: it must be a datetime, or ms since 1970",
            field="deliver_at",
        )
    return deliver_at


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _checked(field: str, what: str, milliseconds: int) -> int:
    try:
        return checked_time(what, milliseconds)
    except FormatError as error:
        raise InvalidMessageError(f"{field}: {error}", field=field) from error


@dataclass(frozen=True, slots=True)
class Delayed:
    """A message that was sent to come later: where to, its UNIQ_KEY, and when."""

    topic: str
    queue_id: int
    key: str
    later: Later

    def due_ms(self, store_timestamp: int) -> int:
        """When it comes, if its record was stored at `store_timestamp` (ms)."""
        if self.later.due_ms is not None:
            return self.later.due_ms
        assert self.later.delay_ms is not None
        return store_timestamp + self.later.delay_ms

    def handle(self, store_timestamp: int, log_offset: int) -> str:
        """By which it is called back; empty if the position of its record is not known."""
        if log_offset < 0:
            return ""
        return handle_of(self.topic, self.due_ms(store_timestamp), self.key, log_offset).encode()

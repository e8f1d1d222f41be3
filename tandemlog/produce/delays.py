"""When a message is to come, from what a caller says: a timedelta, a datetime, or milliseconds."""

from datetime import datetime, timedelta

from ..delayed import Later
from ..errors import InvalidMessageError
from ..format.delay.timing import checked_time
from ..format.errors import FormatError


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

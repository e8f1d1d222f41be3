"""What a handler raises to say what becomes of its message.

returns               done
raises Reject         a dead letter, now
raises RetryAfter     again, after so many seconds
raises anything else  again, after the pause that the group's policy has for this attempt
"""

from datetime import timedelta
from typing import Final

from ...errors import InvalidArgumentError
from ...format.lease.policy import MAX_DELAY_MS, short_error


class Reject(Exception):  # noqa: N818 - a decision, not an error
    """Raised by a handler: the message goes to the dead letters of the group, with this text, and
    does not come again."""


class RetryAfter(Exception):  # noqa: N818 - a decision, not an error
    """Raised by a handler: the message comes again after `seconds` (or a timedelta), with `error`
    as its last error. It counts as an attempt."""

    def __init__(self, seconds: float | timedelta, error: object = "") -> None:
        self.delay_ms: Final = delay_in_ms(seconds)
        self.error: Final = error
        super().__init__(f"again after {self.delay_ms} ms" + (f": {error}" if error else ""))


def in_seconds(value: float | timedelta, field: str) -> float:
    """A number of seconds. Raises InvalidArgumentError for what is no time."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float):
        return value
    raise InvalidArgumentError(f"{field}={value!r}: it is seconds, or a timedelta", field=field)


def delay_in_ms(seconds: float | timedelta, field: str = "after") -> int:
    """Milliseconds. Raises InvalidArgumentError for a time that no retry can wait."""
    value = in_seconds(seconds, field)
    # not "value < 0 or ...": a NaN is refused too
    if not 0 <= value * 1000 <= MAX_DELAY_MS:
        raise InvalidArgumentError(
            f"{field}={seconds!r}: a retry waits 0 to {MAX_DELAY_MS // 1000} seconds; to have a "
            "message later than that, send it with a delay",
            field=field,
            limit=MAX_DELAY_MS,
        )
    return round(value * 1000)


def error_text(error: object) -> str:
    """What is kept as a message's last error: the kind and the text of an exception, or a text."""
    if isinstance(error, Reject | RetryAfter):
        text = str(error)
    elif isinstance(error, BaseException):
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    else:
        text = str(error)
    return short_error(text)

"""When a message that comes later is due, as its waiting record says it.

    topic                        properties                          due at (ms)
    SCHEDULE_TOPIC_XXXX/level-1  DELAY=level                         store time + the level's delay
    rmq_sys_wheel_timer/0        TIMER_OUT_MS, __TL_DUE=1764200000250  that
                                 TIMER_OUT_MS, __TL_DUE=+90250         store time + that
                                 TIMER_OUT_MS, TIMER_DELIVER_MS        that
                                 TIMER_OUT_MS alone                    the second behind it

A broker of RocketMQ floors: it writes TIMER_OUT_MS, the last whole second before the time that was
asked for, and forgets the rest. tandemlog keeps the exact time in a property of its own, which a
broker ignores. Of a record without it a message may be due up to one second later than it was asked
for, and never earlier.

A delay counts from the store time of the record, which is the master's clock: the client's own
clock may be wrong.
"""

from collections.abc import Mapping
from typing import Final

from ..constants import (
    DUE,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from ..errors import FormatError

PRECISION_MS: Final = 1000
DEFAULT_MAX_DELAY_MS: Final = 3 * 86_400_000
"""RocketMQ's timerMaxDelaySec."""
LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: no time is later, and none has more digits."""
MOST_DIGITS: Final = 18
"""Of a number in these properties; more is no number."""


def out_ms(due_ms: int) -> int:
    """TIMER_OUT_MS of a message that is due at `due_ms`: the last whole second before it."""
    return (due_ms - 1) // PRECISION_MS * PRECISION_MS


def checked_time(name: str, milliseconds: int) -> int:
    """The time or delay, if it can be one. Raises FormatError."""
    if milliseconds < 0:
        raise FormatError(f"{name} {milliseconds} ms is negative")
    if milliseconds > LATEST_MS:
        raise FormatError(
            f"{name} {milliseconds} ms is more than {LATEST_MS}, the end of the year 9999"
        )
    return milliseconds


def timer_due_ms(properties: Mapping[str, str], store_timestamp: int) -> int | None:
    """When the message of a record in TIMER_TOPIC is due; None if the record does not say it, and
    nothing waits then. `store_timestamp` in ms, as all times."""
    out = _number(properties.get(TIMER_OUT_MS))
    if out is None:
        return None
    exact = properties.get(DUE, "")
    if (value := _number(exact.removeprefix("+"))) is not None:
        return value + store_timestamp if exact.startswith("+") else value
    latest = out + PRECISION_MS
    deliver = _number(properties.get(TIMER_DELIVER_MS))
    if deliver is not None and out < deliver <= latest:
        return deliver
    delay = _number(properties.get(TIMER_DELAY_MS))
    seconds = _number(properties.get(TIMER_DELAY_SEC))
    if seconds is not None:
        delay = seconds * 1000
    # the broker took its time before it stored the record
    return latest if delay is None else max(min(latest, store_timestamp + delay), out)


def _number(text: str | None) -> int | None:
    if not text or len(text) > MOST_DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)

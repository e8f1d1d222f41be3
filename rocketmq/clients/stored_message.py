"""A message on its way into the store: where it goes, and the record that a broker would write.

    sent to orders/3            ──────────────────────────────▶ orders/3
    DELAY=5                     REAL_TOPIC REAL_QID ──────────▶ SCHEDULE_TOPIC_XXXX/4
    TIMER_DELAY_SEC=90  (or _MS, or TIMER_DELIVER_MS)
                                TIMER_OUT_MS REAL_TOPIC .. ───▶ rmq_sys_wheel_timer/0

A delay level counts, and takes the timers away. A time that is over makes an ordinary message. A
message with TIMER_OUT_MS has waited before, and is a copy of that one: it does not wait again. The
exact time stands beside TIMER_OUT_MS (tandemlog.format.delay.framing).

A message that does not wait is stored without the properties that ask for it, where a broker leaves
them in: a record of an ordinary topic with them has waited, and only a store writes such records.
"""

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final

from tandemlog.format.constants import (
    DELAY,
    DELAY_TOPICS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRANSACTION_PREPARED,
)
from tandemlog.format.delay.framing import PLACE_OF_TIMERS, after, at, by_level, place_of_level
from tandemlog.format.delay.timing import MOST_DIGITS
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import TopicFrame, frame_message
from tandemlog.format.record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6
from tandemlog.format.words import shortened

from .stored_properties import ASKS

FRAMES_KEPT: Final = 8192
HOST_FLAGS: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
"""Bits that say how long hosts are: the frame has them."""
_TIMERS: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""In the order in which a broker looks."""
_TO_SECONDS: Final = 1000
_TIMES: Final = Struct(">i")
_TIMES_BEFORE_BODY: Final = 16
"""Bytes before the body in which the number of retries begins."""


@dataclass(slots=True)
class StoredMessage:
    """One message and the queue where it is stored. `properties` in the order in which they came;
    `due_ms` is when it comes, for one that waits for a time of its own."""

    topic: str
    queue_id: int
    properties: dict[str, str]
    body: bytes
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    reconsume_times: int = 0
    due_ms: int | None = None

    @property
    def asks(self) -> bool:
        """Whether `make_wait` has something to do."""
        return not ASKS.isdisjoint(self.properties)

    @property
    def waiting(self) -> bool:
        """Whether it is stored where messages wait."""
        return self.topic in DELAY_TOPICS


def make_wait(message: StoredMessage, *, max_level: int, now_ms: int) -> None:
    """Put a message that asks for a delay where such messages wait; see the module. Raises
    FormatError for a delay that cannot be read, and for one that calls another message back."""
    properties = message.properties
    if TIMER_DEL_UNIQKEY in properties:
        raise FormatError(
            f"property {TIMER_DEL_UNIQKEY} calls another message back: use its recall handle"
        )
    properties.pop(TRANSACTION_PREPARED, None)  # of a message that begins no transaction
    level = _delay(properties, DELAY) if DELAY in properties else 0
    if level > 0:
        for name in _TIMERS:
            properties.pop(name, None)
        level = min(level, max_level)
        properties.update(by_level(message.topic, message.queue_id, level))
        message.topic, message.queue_id = place_of_level(level)
        return
    if TIMER_OUT_MS not in properties:
        _wait_for_time(message, now_ms)
    if message.waiting:
        properties.pop(DELAY, None)
    else:
        for name in ASKS.intersection(properties):
            del properties[name]


def _wait_for_time(message: StoredMessage, now_ms: int) -> None:
    properties, topic, queue_id = message.properties, message.topic, message.queue_id
    name = next((each for each in _TIMERS if each in properties), None)
    if name is None:
        return
    number = _delay(properties, name)
    if name == TIMER_DELIVER_MS:
        due_ms = number
        more = at(topic, queue_id, due_ms) if due_ms > now_ms else {}
    else:
        delay_ms = number * _TO_SECONDS if name == TIMER_DELAY_SEC else number
        due_ms = now_ms + delay_ms
        more = after(topic, queue_id, delay_ms, now_ms) if delay_ms > 0 else {}
    if not more:
        return
    properties.update({key: value for key, value in more.items() if key not in _TIMERS})
    message.topic, message.queue_id = PLACE_OF_TIMERS
    message.due_ms = due_ms


def _delay(properties: dict[str, str], name: str) -> int:
    text = properties[name]
    digits = text[1:] if text.startswith(("-", "+")) else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS):
        raise FormatError(f"property {name} says {shortened(repr(text), 60)}, which is no number")
    return int(text)


@lru_cache(maxsize=FRAMES_KEPT)
def topic_frame(topic: str, born_host: str, store_ipv6: bool) -> TopicFrame:
    """What the records of a topic from one client have in common."""
    return TopicFrame(topic, born_host, store_ipv6=store_ipv6)


def frame_stored(
    message: StoredMessage, properties: bytes, born_host: str, *, store_ipv6: bool
) -> bytes:
    """The record, in which the store fills in what it alone knows. `properties` as they are stored.
    Raises RecordTooLargeError, and FormatError for a field out of its range."""
    frame = topic_frame(message.topic, born_host, store_ipv6)
    record = frame_message(
        frame,
        message.body,
        properties,
        message.queue_id,
        message.born_timestamp,
        message.flag,
        message.sys_flag & ~HOST_FLAGS,
    )
    if not message.reconsume_times:
        return record
    place = frame.empty_size - len(frame.topic_part) - 2 - _TIMES_BEFORE_BODY
    times = _TIMES.pack(message.reconsume_times)
    return b"".join((record[:place], times, record[place + len(times) :]))

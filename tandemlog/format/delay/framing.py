"""What a waiting record has beside the properties of its message, as RocketMQ 5.5 writes it.

    message to orders/3, in 90.25 s    ─▶  rmq_sys_wheel_timer/0, with
                                           TIMER_DELAY_MS=90250    as it was asked for
                                           TIMER_OUT_MS=...        the second in which a broker acts
                                           REAL_TOPIC=orders REAL_QID=3
                                           __TL_DUE=+90250         the exact time
    message to orders/3, level 5       ─▶  SCHEDULE_TOPIC_XXXX/4, with DELAY=5 REAL_TOPIC REAL_QID

The record keeps these properties when it is delivered, as RocketMQ's does: a reader may look when
it was to come.

A recall is a record of the same topic. It names the waiting record twice: by the message's key, as
RocketMQ does, and in its header by the log offset.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ..constants import (
    CRC32,
    DELAY,
    DUE,
    PRODUCER_MARK,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMER_TOPIC,
    UNIQ_KEY,
)
from ..errors import RecordTooLargeError
from ..record.properties import edited_properties
from ..record.record import Record, encode_record
from .timing import checked_time, out_ms

ROLL_ROOM: Final = 128
"""Bytes that the properties of a waiting record leave free, for the record in which it waits on."""
FIRST_RECORD: Final = -1
"""Names the record at log offset 0 in `prepared_transaction_offset`, where 0 names none."""
_RECALL_TAG: Final = "_RECALL_TAG_"
_RECALL_BODY: Final = b"0"
_ASKED_FOR: Final = (TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS)
_NO_KEY: Final = "-"
"""In the place of a key: the property alone makes the record a recall."""


def name_of(log_offset: int) -> int:
    """What a later record has in `prepared_transaction_offset` to name the one at `log_offset`."""
    return log_offset or FIRST_RECORD


def place_of_level(level: int) -> tuple[str, int]:
    """Topic and queue in which messages of a delay level wait."""
    return SCHEDULE_TOPIC, level - 1


PLACE_OF_TIMERS: Final = (TIMER_TOPIC, 0)
"""Topic and queue in which messages for any time wait."""


def after(topic: str, queue_id: int, delay_ms: int, now_ms: int) -> dict[str, str]:
    """The properties more of a message to this queue that is due `delay_ms` after it is stored.
    `now_ms` is the sender's clock, for TIMER_OUT_MS alone. Raises FormatError."""
    checked_time("a delay of", delay_ms)
    return {
        TIMER_DELAY_MS: str(delay_ms),
        **_timer(topic, queue_id, now_ms + delay_ms),
        DUE: f"+{delay_ms}",
    }


def at(topic: str, queue_id: int, due_ms: int) -> dict[str, str]:
    """The properties more of a message to this queue that is due at `due_ms`. Raises
    FormatError."""
    checked_time("the time", due_ms)
    return {
        TIMER_DELIVER_MS: str(due_ms),
        **_timer(topic, queue_id, due_ms),
        DUE: str(due_ms),
    }


def by_level(topic: str, queue_id: int, level: int) -> dict[str, str]:
    """The properties more of a message to this queue that waits for a delay level."""
    return {DELAY: str(level), REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}


def _timer(topic: str, queue_id: int, due_ms: int) -> dict[str, str]:
    return {
        TIMER_OUT_MS: str(max(out_ms(due_ms), 0)),
        REAL_TOPIC: topic,
        REAL_QUEUE_ID: str(queue_id),
    }


def recall_record(
    waiting: Record, due_ms: int, *, now_ms: int, born_host: str, store_host: str
) -> bytes:
    """The record that calls back the message of `waiting`, due at `due_ms`."""
    key = waiting.uniq_key or ""
    real_topic = waiting.properties.get(REAL_TOPIC, "")
    properties = {
        TIMER_DEL_UNIQKEY: key or _NO_KEY,
        UNIQ_KEY: key,
        TAGS: _RECALL_TAG,
        TIMER_DELIVER_MS: str(out_ms(due_ms) + 1),
        TIMER_OUT_MS: waiting.properties.get(TIMER_OUT_MS) or str(max(out_ms(due_ms), 0)),
        REAL_TOPIC: real_topic,
        REAL_QUEUE_ID: "0",
    }
    topic, queue_id = PLACE_OF_TIMERS
    return encode_record(
        topic=topic,
        queue_id=queue_id,
        body=_RECALL_BODY,
        properties=properties,
        born_timestamp=now_ms,
        born_host=born_host,
        store_host=store_host,
        prepared_transaction_offset=name_of(waiting.physical_offset),
    )


def given_up_record(log_offset: int, *, now_ms: int, host: str) -> bytes:
    """The record that ends the wait of one that cannot be read: its message is lost. `host` is the
    master's address in the log."""
    topic, queue_id = PLACE_OF_TIMERS
    return encode_record(
        topic=topic,
        queue_id=queue_id,
        body=_RECALL_BODY,
        properties={TIMER_DEL_UNIQKEY: _NO_KEY, TIMER_OUT_MS: "0"},
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
        prepared_transaction_offset=name_of(log_offset),
    )


def rolled_record(waiting: Record, due_ms: int, *, store_host: str) -> bytes:
    """The record in which the message of `waiting` waits on, so that retention may delete the old
    one, which it names. It waits for the same time, in the topic for any time: a level counts from
    the store time of its record. Raises RecordTooLargeError if its properties have no room for
    that: those of clients leave ROLL_ROOM."""
    topic, queue_id = PLACE_OF_TIMERS
    without = (PRODUCER_MARK, CRC32, DELAY, TIMER_OUT_MS, DUE, TIMER_ROLL_TIMES)
    time = {TIMER_OUT_MS: str(max(out_ms(due_ms), 0)), DUE: str(due_ms)}
    rolled = {TIMER_ROLL_TIMES: str(_integer(waiting.properties, TIMER_ROLL_TIMES) + 1)}
    try:
        properties = edited_properties(waiting.properties_raw, without, time | rolled)
    except RecordTooLargeError:
        # what only tells how the time was asked for
        properties = edited_properties(waiting.properties_raw, (*without, *_ASKED_FOR), time)
    return _encoded(
        replace(waiting, topic=topic, queue_id=queue_id, properties_raw=b""),
        properties,
        store_host,
        name_of(waiting.physical_offset),
    )


def with_store_host(record: Record, store_host: str) -> bytes:
    """The same record for a master whose address is of another family."""
    return _encoded(record, record.properties_raw, store_host, record.prepared_transaction_offset)


def _encoded(record: Record, properties: bytes, store_host: str, named: int) -> bytes:
    return encode_record(
        topic=record.topic,
        queue_id=record.queue_id,
        body=record.body,
        properties=properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=store_host,
        physical_offset=record.physical_offset,
        queue_offset=record.queue_offset,
        store_timestamp=record.store_timestamp,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=named,
    )


def _integer(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0

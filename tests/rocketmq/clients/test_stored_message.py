"""Messages on their way into the store: delays and times of a broker, and the record."""

import pytest

from tandemlog.format.constants import SCHEDULE_TOPIC, TIMER_TOPIC
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import decode_record
from tandemlog_server.rocketmq.clients.stored_message import (
    StoredMessage,
    frame_stored,
    make_wait,
)

NOW = 1_700_000_000_250


def waiting(**properties: str) -> StoredMessage:
    message = StoredMessage("orders", 3, dict(properties), b"x")
    make_wait(message, max_level=18, now_ms=NOW)
    return message


@pytest.mark.parametrize(("asked", "level"), [("1", 1), ("18", 18), ("99", 18)])
def test_a_level_has_its_queue(asked: str, level: int) -> None:
    message = waiting(DELAY=asked, TIMER_DELAY_SEC="5", TAGS="a")
    assert (message.topic, message.queue_id) == (SCHEDULE_TOPIC, level - 1)
    assert message.properties == {
        "DELAY": str(level),
        "TAGS": "a",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }
    assert message.due_ms is None


@pytest.mark.parametrize(
    ("name", "value", "due_ms", "out_ms"),
    [
        ("TIMER_DELAY_SEC", "2", NOW + 2000, 1_700_000_002_000),
        ("TIMER_DELAY_MS", "750", NOW + 750, 1_700_000_000_000),
        ("TIMER_DELIVER_MS", "1700000009999", 1_700_000_009_999, 1_700_000_009_000),
        ("TIMER_DELIVER_MS", "1700000009000", 1_700_000_009_000, 1_700_000_008_000),
    ],
)
def test_a_time_is_rounded_down_as_a_broker_does(
    name: str, value: str, due_ms: int, out_ms: int
) -> None:
    message = waiting(**{name: value})
    assert (message.topic, message.queue_id, message.due_ms) == (TIMER_TOPIC, 0, due_ms)
    properties = message.properties
    exact = properties.pop("__TL_DUE")
    assert int(exact) + (NOW if exact.startswith("+") else 0) == due_ms
    assert properties == {
        name: value,
        "TIMER_OUT_MS": str(out_ms),
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": str(NOW)},
        {"TIMER_DELAY_MS": "0"},
        {"TIMER_DELAY_SEC": "-1"},
        {"DELAY": "0"},
        {"DELAY": "-1"},
        {"TIMER_OUT_MS": "1", "TIMER_DELAY_SEC": "5"},
    ],
)
def test_without_time_to_wait_a_message_is_an_ordinary_one(properties: dict[str, str]) -> None:
    message = waiting(TAGS="a", TRAN_MSG="false", **properties)
    assert (message.topic, message.queue_id) == ("orders", 3)
    assert message.properties == {"TAGS": "a"}


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "soon"},
        {"TIMER_DELAY_SEC": "9" * 19},
        {"TIMER_DELIVER_MS": "9" * 18},
        {"TIMER_DEL_UNIQKEY": "A"},
    ],
)
def test_what_is_no_delay_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(FormatError):
        waiting(**properties)


@pytest.mark.parametrize("host", ["10.0.0.7:1", "[::1]:1"])
@pytest.mark.parametrize("store_ipv6", [False, True])
def test_a_record_has_what_was_sent(host: str, store_ipv6: bool) -> None:
    message = StoredMessage("orders", 3, {}, b"body", -7, 0x31, NOW, 5)
    record = decode_record(frame_stored(message, b"a\x011\x02", host, store_ipv6=store_ipv6))
    assert (record.topic, record.queue_id, record.flag) == ("orders", 3, -7)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (5, 0)
    assert (record.body, record.properties) == (b"body", {"a": "1"})
    assert record.born_timestamp == NOW
    assert record.sys_flag & ~0x30 == 1
    assert record.born_host.rpartition(":")[0] in ("10.0.0.7", "[0:0:0:0:0:0:0:1]")

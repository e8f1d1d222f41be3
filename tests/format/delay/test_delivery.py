"""Waiting records by columns, against the plain functions, record by record."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.arrays.ragged import offsets_of
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.constants import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_TOPIC,
    UNIQ_KEY,
)
from tandemlog.format.delay.delivery import Delivery
from tandemlog.format.delay.delivery import delivered as delivered_of
from tandemlog.format.delay.framing import (
    after,
    at,
    by_level,
    name_of,
    recall_record,
    rolled_record,
)
from tandemlog.format.delay.timing import timer_due_ms
from tandemlog.format.delay.waiting_columns import (
    NEITHER,
    RECALLS,
    WAITS,
    hash_of_key,
    waiting_columns,
)
from tandemlog.format.record.record import Record, decode_record, encode_record

STORED = 1_764_200_000_000


def delivered(records: list[bytes], *, store_ipv6: bool) -> Delivery | None:
    sizes = np.array([len(each) for each in records])
    offsets = np.array([decode_record(each).physical_offset for each in records])
    return delivered_of(b"".join(records), sizes, offsets, store_ipv6=store_ipv6)


HOSTS = st.sampled_from(["10.0.0.5:10911", "[fe80:0:0:0:1:2:3:4]:5"])
TOPICS = st.sampled_from(["orders", "P", "%RETRY%GID_reader", "V2-" + "x" * 180])
TEXTS = st.text("ab1", min_size=1, max_size=9)


@st.composite
def waiting_records(draw: st.DrawFn, offset: int) -> bytes:
    topic, queue_id = draw(TOPICS), draw(st.integers(0, 70_000))
    way = draw(st.sampled_from(["after", "at", "level", "broker", "nothing", "recall"]))
    properties: dict[str, str] = {}
    if draw(st.booleans()):
        properties["__TL_SEQ"] = "p,0,1,0,1"
    if draw(st.booleans()):
        properties[UNIQ_KEY] = draw(TEXTS)
    properties["user"] = draw(TEXTS)
    place, place_queue = TIMER_TOPIC, 0
    if way == "after":
        properties |= after(topic, queue_id, draw(st.integers(0, 10**9)), STORED)
    elif way == "at":
        properties |= at(topic, queue_id, STORED + draw(st.integers(0, 10**9)))
    elif way == "level":
        place, place_queue = SCHEDULE_TOPIC, 2
        properties |= by_level(topic, queue_id, 3)
    elif way == "broker":
        properties |= {
            "TIMER_DELAY_MS": draw(st.sampled_from(["5000", "1", "x"])),
            "TIMER_OUT_MS": str(STORED + draw(st.integers(-2, 9)) * 1000),
            REAL_TOPIC: topic,
            REAL_QUEUE_ID: str(queue_id),
        }
    elif way == "recall":
        properties |= {TIMER_DEL_UNIQKEY: "k", "TIMER_OUT_MS": str(STORED)}
    if draw(st.booleans()):
        properties["later"] = draw(TEXTS)
    return encode_record(
        topic=place,
        queue_id=place_queue,
        body=draw(st.binary(max_size=40)),
        properties=properties,
        flag=draw(st.integers(0, 9)),
        sys_flag=draw(st.sampled_from([0, 1])),
        born_timestamp=STORED - 5,
        born_host=draw(HOSTS),
        store_host=draw(HOSTS),
        store_timestamp=STORED,
        physical_offset=offset,
        reconsume_times=draw(st.integers(0, 3)),
        property_crc=draw(st.booleans()),
    )


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    records: list[bytes] = []
    for _ in range(draw(st.integers(1, 12))):
        records.append(draw(waiting_records(sum(map(len, records)))))
    return records


@given(records=batches())
def test_columns_say_what_the_plain_functions_say(records: list[bytes]) -> None:
    data = b"".join(records)
    sizes = np.array([len(each) for each in records])
    plain = [decode_record(each) for each in records]
    scheduled = np.array([each.topic == SCHEDULE_TOPIC for each in plain])
    level_due = np.array([each.store_timestamp + 10_000 for each in plain])
    stored = np.array([each.store_timestamp for each in plain])
    headers = gather_headers(data, offsets_of(sizes)[:-1], sizes)
    found = waiting_columns(data, headers, scheduled, level_due, stored)
    for row, record in enumerate(plain):
        kind, due = plain_kind(record)
        assert found.kind[row] == kind
        if kind == WAITS:
            assert found.due_ms[row] == due
        assert found.key_hash[row] == hash_of_key(
            record.properties.get(REAL_TOPIC, ""), record.uniq_key or ""
        )


def plain_kind(record: Record) -> tuple[int, int | None]:
    if record.topic == SCHEDULE_TOPIC:
        return WAITS, record.store_timestamp + 10_000
    if TIMER_DEL_UNIQKEY in record.properties:
        return RECALLS, None
    due = timer_due_ms(record.properties, record.store_timestamp)
    return (NEITHER if due is None else WAITS), due


@given(records=batches(), store_ipv6=st.booleans())
def test_a_delivered_message_is_the_one_that_waited(records: list[bytes], store_ipv6: bool) -> None:
    plain = [decode_record(each) for each in records]
    expected = [each for each in plain if REAL_TOPIC in each.properties]
    found = delivered(records, store_ipv6=store_ipv6)
    if not expected:
        assert found is None
        return
    assert found is not None
    assert [plain[row].physical_offset for row in found.rows] == [
        each.physical_offset for each in expected
    ]
    position = 0
    for number, size in enumerate(found.batch.sizes.tolist()):
        framed = bytes(found.batch.records[position : position + size])
        assert_delivered(decode_record(framed), expected[number])
        entry = int(found.batch.queue_indexes[number])
        assert found.batch.queue_ids[entry] == decode_record(framed).queue_id
        topic = found.batch.topics[int(found.batch.queue_topics[entry])]
        assert topic == decode_record(framed).topic
        assert bool(framed[39] & 0x20) == store_ipv6
        position += size
    assert position == found.batch.byte_size


def assert_delivered(message: Record, waiting: Record) -> None:
    properties = dict(waiting.properties)
    properties.pop("__TL_SEQ", None)
    properties.pop("__CRC32#", None)
    assert message.properties == properties
    assert message.topic == properties[REAL_TOPIC]
    assert message.queue_id == int(properties[REAL_QUEUE_ID])
    assert message.prepared_transaction_offset == name_of(waiting.physical_offset)
    for name in ("body", "flag", "born_timestamp", "born_host", "reconsume_times", "body_crc"):
        assert getattr(message, name) == getattr(waiting, name)
    assert message.sys_flag & 1 == waiting.sys_flag & 1


def test_no_more_queues_than_a_batch_can_have_are_delivered_at_once() -> None:
    records, offset = [], 0
    for queue_id in range(65_540):
        records.append(
            encode_record(
                topic=TIMER_TOPIC,
                body=b"",
                properties=at("t", queue_id, STORED),
                physical_offset=offset,
            )
        )
        offset += len(records[-1])
    found = delivered(records, store_ipv6=False)
    assert found is not None
    assert found.batch.count == len(found.rows) == 65_535


def test_the_record_at_log_offset_0_can_be_named() -> None:
    record = encode_record(topic=TIMER_TOPIC, body=b"x", properties=at("t", 0, STORED))
    found = delivered([record], store_ipv6=False)
    assert found is not None
    assert decode_record(bytes(found.batch.records)).prepared_transaction_offset == -1


@pytest.mark.parametrize("level", [False, True])
def test_a_rolled_record_waits_for_the_same_time(level: bool) -> None:
    properties = by_level("t", 1, 3) if level else after("t", 1, 90_250, STORED + 7)
    waiting = decode_record(
        encode_record(
            topic=SCHEDULE_TOPIC if level else TIMER_TOPIC,
            body=b"x",
            properties={UNIQ_KEY: "K", "__TL_SEQ": "p,0,1,0,1", **properties},
            physical_offset=4000,
            store_timestamp=STORED,
        )
    )
    due_ms = STORED + (10_000 if level else 90_250)
    rolled = decode_record(rolled_record(waiting, due_ms, store_host="10.0.0.5:10911"))
    assert rolled.topic == TIMER_TOPIC
    assert rolled.queue_id == 0
    assert timer_due_ms(rolled.properties, STORED + 86_400_000) == due_ms
    assert rolled.prepared_transaction_offset == 4000
    assert rolled.properties["TIMER_ROLL_TIMES"] == "1"
    assert rolled.body == b"x"
    assert rolled.uniq_key == "K"
    assert not {"DELAY", "__TL_SEQ"} & set(rolled.properties)


def test_a_recall_names_its_record_and_the_second_of_a_broker() -> None:
    waiting = decode_record(
        encode_record(
            topic=TIMER_TOPIC,
            body=b"x",
            properties={UNIQ_KEY: "K", **at("t", 1, STORED + 250)},
            physical_offset=4000,
        )
    )
    recall = decode_record(
        recall_record(
            waiting, STORED + 250, now_ms=1, born_host="1.2.3.4:5", store_host="1.2.3.4:6"
        )
    )
    assert recall.topic == TIMER_TOPIC
    assert recall.prepared_transaction_offset == 4000
    assert recall.properties[TIMER_DEL_UNIQKEY] == recall.uniq_key == "K"
    assert recall.properties["TIMER_OUT_MS"] == waiting.properties["TIMER_OUT_MS"]


def test_bytes_of_another_record_are_left_out() -> None:
    first = encode_record(topic=TIMER_TOPIC, body=b"x", properties=at("t", 0, STORED))
    second = encode_record(
        topic=TIMER_TOPIC, body=b"y", properties=at("t", 0, STORED), physical_offset=999
    )
    sizes = np.array([len(first), len(second), 50])
    offsets = np.array([7, 999, 2000])
    found = delivered_of(first + second + bytes(50), sizes, offsets, store_ipv6=False)
    assert found is not None
    assert found.rows.tolist() == [1]

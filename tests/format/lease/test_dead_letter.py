"""Dead letters: what they keep of their message, and what they say of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.constants import MAX_PROPERTIES
from tandemlog.format.lease.dead_letter import (
    DeadLetter,
    decode_dead_letter,
    encode_dead_letter,
    plain_properties,
)
from tandemlog.format.record.record import Record, decode_record, encode_record

VALUES = st.text(
    st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=30
)


def message(properties: dict[str, str], **fields: object) -> Record:
    data = encode_record(
        topic="orders", body=b"body", properties=properties, queue_id=3, queue_offset=41,
        physical_offset=977, born_timestamp=5, **fields,  # type: ignore[arg-type]
    )  # fmt: skip
    return decode_record(data)


def letter_of(record: Record, **changes: object) -> Record:
    said = {"attempts": 4, "error": "no", "first_ms": 7, "last_ms": 9, **changes}
    return decode_record(
        encode_dead_letter(record, "g", store_host="0.0.0.0:0", **said)  # type: ignore[arg-type]
    )


@given(st.dictionaries(st.sampled_from(("KEYS", "TAGS", "UNIQ_KEY", "mine")), VALUES), VALUES)
def test_it_keeps_the_message_and_says_what_happened(
    properties: dict[str, str], error: str
) -> None:
    record = message(properties)
    letter = letter_of(record, error=error)
    assert (letter.topic, letter.queue_id, letter.body) == ("%DLQ%g", 0, b"body")
    assert (letter.born_timestamp, letter.reconsume_times) == (5, 4)
    assert {name: letter.properties[name] for name in properties} == properties
    assert decode_dead_letter(letter) == DeadLetter("orders", 3, 41, record.msg_id, 4, error, 7, 9)


def test_a_retried_message_comes_from_its_own_topic() -> None:
    properties = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "THE-FIRST"}
    data = encode_record(topic="%RETRY%g", body=b"body", properties=properties, queue_offset=5)
    letter = letter_of(decode_record(data))
    said = decode_dead_letter(letter)
    assert letter.properties["DLQ_ORIGIN_TOPIC"] == said.topic == "orders"
    assert letter.properties["DLQ_ORIGIN_MESSAGE_ID"] == said.message_id == "THE-FIRST"
    assert (said.queue_id, said.queue_offset) == (-1, -1)
    # of another group's topic of retries it is a message like others
    assert (
        letter_of(replace(decode_record(data), topic="%RETRY%h")).properties["DLQ_ORIGIN_TOPIC"]
        == "%RETRY%h"
    )


def test_what_a_store_would_act_on_is_left_out() -> None:
    acted_on = {
        "DELAY": "3", "TIMER_OUT_MS": "1", "REAL_TOPIC": "x", "REAL_QID": "0", "__TL_DUE": "+1",
        "__TL_SEQ": "a,1,1,0,1", "TRAN_MSG": "true", "INNER_MULTI_DISPATCH": "q",
    }  # fmt: skip
    letter = letter_of(message({**acted_on, "KEYS": "k"}))
    assert acted_on.keys().isdisjoint(letter.properties)
    assert plain_properties(message({**acted_on, "KEYS": "k"})) == {"KEYS": "k"}


@pytest.mark.parametrize("left", [400, 250, 60, 0])
def test_without_room_the_error_goes_first_and_the_origin_last(left: int) -> None:
    name = "mine"
    record = message({name: "v" * (MAX_PROPERTIES - left - len(name) - 2)})
    letter = letter_of(record, error="e" * 256)
    assert len(letter.properties_raw) <= MAX_PROPERTIES
    said = decode_dead_letter(letter)
    assert (said.topic, said.message_id) == ("orders", record.msg_id)
    assert said.last_error == ""


def test_a_letter_of_a_broker_that_came_by_its_retry_topic() -> None:
    record = message(
        {"DLQ_ORIGIN_TOPIC": "%RETRY%g", "DLQ_ORIGIN_MESSAGE_ID": "A", "RETRY_TOPIC": "orders"},
        reconsume_times=17,
    )
    assert decode_dead_letter(record) == DeadLetter("orders", -1, -1, "A", 17, "", 0, 0)
    bare = replace(record, properties_raw=b"TANDEMLOG_ATTEMPTS\x01x\x02")
    assert decode_dead_letter(bare) == DeadLetter("", -1, -1, "", 17, "", 0, 0)

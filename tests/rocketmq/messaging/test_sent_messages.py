"""Messages of the 5.x API become the records of a broker, and what a client may not say is not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.record.record import decode_record
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.clients.stored_message import frame_stored
from tandemlog_server.rocketmq.clients.stored_properties import stored_properties
from tandemlog_server.rocketmq.messaging.delivered_messages import delivered
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError
from tandemlog_server.rocketmq.messaging.sent_messages import stored_message

NOW_MS = 1_700_000_000_000


def message(**system: Any) -> v2.Message:
    given = {"message_id": "01AB", "message_type": v2.NORMAL, **system}
    made = v2.Message(topic=v2.Resource(name="Orders"), body=b"x")
    for name, value in given.items():
        if name == "keys":
            made.system_properties.keys.extend(value)
        elif name in ("delivery_timestamp", "born_timestamp"):
            getattr(made.system_properties, name).FromMilliseconds(value)
        else:
            setattr(made.system_properties, name, value)
    return made


def test_a_message_has_the_properties_that_rocketmqs_proxy_writes() -> None:
    sent = message(
        tag="pay", keys=["a", "b"], born_host="h", trace_context="t", born_timestamp=5_000
    )
    sent.user_properties["colour"] = "red"
    stored = stored_message(sent, 3, NOW_MS)
    assert (stored.topic, stored.queue_id, stored.body) == ("Orders", 3, b"x")
    assert stored.born_timestamp == 5_000
    assert stored.properties == {
        "colour": "red",
        "UNIQ_KEY": "01AB",
        "TAGS": "pay",
        "KEYS": "a b",
        "traceparent": "t",
        "__BORNHOST": "h",
    }


@pytest.mark.parametrize(
    ("system", "properties"),
    [
        ({"message_type": v2.FIFO, "message_group": "g"}, {"__SHARDINGKEY": "g"}),
        (
            {"message_type": v2.DELAY, "delivery_timestamp": NOW_MS + 9_000},
            {"TIMER_DELIVER_MS": str(NOW_MS + 9_000)},
        ),
        ({"message_type": v2.TRANSACTION}, {"TRAN_MSG": "true", "PGROUP": "Orders"}),
    ],
)
def test_types_are_said_by_properties(system: dict[str, Any], properties: dict[str, str]) -> None:
    stored = stored_message(message(**system), 0, NOW_MS)
    assert stored.properties == {"UNIQ_KEY": "01AB", **properties}


@pytest.mark.parametrize(
    ("system", "code"),
    [
        ({"message_type": v2.LITE}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"message_type": v2.NORMAL, "message_group": "g"}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"message_type": v2.FIFO}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"message_type": v2.DELAY}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"delivery_timestamp": NOW_MS}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"message_id": ""}, v2.ILLEGAL_MESSAGE_ID),
        ({"message_id": "a\x01b"}, v2.ILLEGAL_MESSAGE_ID),
        ({"tag": "a|b"}, v2.ILLEGAL_MESSAGE_TAG),
        ({"keys": [" "]}, v2.ILLEGAL_MESSAGE_KEY),
        ({"keys": ["a\x02b"]}, v2.ILLEGAL_MESSAGE_KEY),
    ],
)
def test_what_contradicts_itself_is_refused(system: dict[str, Any], code: int) -> None:
    with pytest.raises(MessagingRefusedError) as refused:
        stored_message(message(**system), 0, NOW_MS)
    assert refused.value.code == code


@pytest.mark.parametrize("name", ["TAGS", "__TL_SEQ", "a\x01b", ""])
def test_names_of_rocketmq_and_separators_are_no_properties(name: str) -> None:
    sent = message()
    sent.user_properties[name] = "v"
    with pytest.raises(MessagingRefusedError) as refused:
        stored_message(sent, 0, NOW_MS)
    assert refused.value.code == v2.ILLEGAL_MESSAGE_PROPERTY_KEY


words = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=20)


@given(
    body=st.binary(min_size=1, max_size=200),
    tag=st.none() | words,
    keys=st.lists(words, max_size=3),
    group=st.none() | words,
    properties=st.dictionaries(words, words, max_size=4),
)
def test_a_message_comes_back_as_it_was_sent(
    body: bytes, tag: str | None, keys: list[str], group: str | None, properties: dict[str, str]
) -> None:
    kind = v2.FIFO if group else v2.NORMAL
    sent = message(message_type=kind, keys=keys, born_timestamp=7_000, born_host="h")
    sent.body = body
    taken = {name: value for name, value in properties.items() if name != "traceparent"}
    sent.user_properties.update(taken)
    if tag:
        sent.system_properties.tag = tag
    if group:
        sent.system_properties.message_group = group
    stored = stored_message(sent, 2, NOW_MS)
    record = decode_record(
        frame_stored(stored, stored_properties(stored.properties), "10.0.0.7:5", store_ipv6=False),
        check_crc=False,
    )
    got = delivered(record, space="", handle="H", attempt=3, lease_ms=1_000)
    system = got.system_properties
    assert got.body == body
    assert dict(got.user_properties) == taken
    assert (system.message_id, system.message_type) == ("01AB", kind)
    assert (system.tag, list(system.keys)) == (tag or "", keys)
    assert system.message_group == (group or "")
    assert (system.receipt_handle, system.delivery_attempt, system.queue_id) == ("H", 3, 2)
    assert (system.born_timestamp.ToMilliseconds(), system.born_host) == (7_000, "h")
    assert system.body_encoding == v2.IDENTITY

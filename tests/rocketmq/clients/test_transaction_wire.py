"""Decisions and checks of transactions on the wire."""

import pytest

from tandemlog.format.errors import FormatError
from tandemlog.format.record.message_id import encode_offset_id
from tandemlog.format.record.record import decode_record, encode_record
from tandemlog.format.transaction.half import half_properties
from tandemlog_server.rocketmq.clients.transaction_wire import (
    EndTransaction,
    check_body,
    check_fields,
    mismatch,
    read_end_transaction,
)

FIELDS = {
    "producerGroup": "billing",
    "tranStateTableOffset": "7",
    "commitLogOffset": "4096",
    "commitOrRollback": "8",
    "msgId": "AC11",
    "transactionId": "AC11",
    "fromTransactionCheck": "false",
    "bname": "broker-a",
}


def test_a_decision_is_read() -> None:
    assert read_end_transaction(FIELDS) == EndTransaction("billing", 4096, 7, True, ("AC11",))
    answer = read_end_transaction(
        FIELDS | {"commitOrRollback": "12", "fromTransactionCheck": "true"}
    )
    assert (answer.commits, answer.from_check) == (False, True)
    assert read_end_transaction(FIELDS | {"commitOrRollback": "0"}).commits is None


def test_names_may_be_missing() -> None:
    fields = {name: text for name, text in FIELDS.items() if name not in ("msgId", "transactionId")}
    assert read_end_transaction(fields).names == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("commitOrRollback", "4"),
        ("commitLogOffset", "-1"),
        ("commitLogOffset", "1" * 20),
        ("tranStateTableOffset", ""),
        ("tranStateTableOffset", "٣"),
        ("producerGroup", "g" * 256),
        ("msgId", "m" * 256),
    ],
)
def test_fields_of_another_form(name: str, text: str) -> None:
    with pytest.raises(FormatError, match=name):
        read_end_transaction(FIELDS | {name: text})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"group": "other"}, "producer group 'other', not 'billing'"),
        ({"queue_offset": 8}, "queue offset 8, not 7"),
        ({"key": "BB"}, "UNIQ_KEY is 'BB', not 'AC11'"),
    ],
)
def test_which_half_is_meant(changes: dict[str, object], fault: str | None) -> None:
    half = {"group": "billing", "key": "AC11", "queue_offset": 7} | changes
    found = mismatch(read_end_transaction(FIELDS), **half)  # type: ignore[arg-type]
    assert (found is None) if fault is None else (found is not None and fault in found)


@pytest.mark.parametrize(("offset", "fits"), [(4096, True), (4097, False)])
def test_a_half_called_by_its_offset_id(offset: int, *, fits: bool) -> None:
    name = encode_offset_id("10.0.0.1:10911", offset)
    wanted = read_end_transaction(FIELDS | {"msgId": name, "transactionId": ""})
    fault = mismatch(wanted, group="billing", key="AC11", queue_offset=7)
    assert (fault is None) is fits


def test_a_check_has_the_half_with_its_own_topic() -> None:
    half = decode_record(
        encode_record(
            topic="RMQ_SYS_TRANS_HALF_TOPIC",
            body=b"body",
            properties={"UNIQ_KEY": "AC11", "TAGS": "pay"}
            | half_properties("orders", 3, group="billing", key="AC11", transaction_id="AC11-1"),
            sys_flag=1,
            born_timestamp=5,
            queue_offset=7,
            physical_offset=4096,
            store_timestamp=6,
            store_host="10.0.0.1:10911",
        )
    )
    assert check_fields(half) == {
        "topic": "orders",
        "tranStateTableOffset": "7",
        "commitLogOffset": "4096",
        "msgId": "AC11",
        "transactionId": "AC11",
        "offsetMsgId": encode_offset_id("10.0.0.1:10911", 4096),
    }
    sent = decode_record(check_body(half))
    assert (sent.topic, sent.queue_id, sent.body, sent.sys_flag) == ("orders", 3, b"body", 1)
    assert (sent.queue_offset, sent.physical_offset, sent.store_timestamp) == (7, 4096, 6)
    assert sent.properties["PGROUP"] == "billing"


def test_a_half_that_goes_nowhere_is_not_asked_about() -> None:
    half = decode_record(encode_record(topic="RMQ_SYS_TRANS_HALF_TOPIC", body=b""))
    with pytest.raises(FormatError, match="where it goes"):
        check_body(half)

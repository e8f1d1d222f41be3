"""A send that begins a transaction, as the half that a broker stores."""

import re
from dataclasses import dataclass, field

import pytest

from tandemlog.format.constants import HALF_TOPIC
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import decode_record, encode_record
from tandemlog.format.transaction.half import half_fault, half_of
from tandemlog_server.rocketmq.clients.half_messages import is_half, make_half

SENT = {"TRAN_MSG": "true", "PGROUP": "billing", "UNIQ_KEY": "AC11", "TAGS": "pay"}


@dataclass
class Sent:
    properties: dict[str, str] = field(default_factory=lambda: dict(SENT))
    topic: str = "orders"
    queue_id: int = 3
    sys_flag: int = 0x4 | 0x1
    born_timestamp: int = 0x19AC_0F00_00AB
    reconsume_times: int = 0


def test_what_is_stored() -> None:
    sent = Sent()
    assert is_half(sent)
    make_half(sent, producer_group="another", serial=2)
    assert (sent.topic, sent.queue_id, sent.sys_flag) == (HALF_TOPIC, 0, 0x1)
    assert sent.properties == SENT | {
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
        "__transactionId__": "AC11",
        "__TL_TX": "AC11-f0000ab-2",
    }


def test_the_store_takes_it() -> None:
    sent = Sent(properties=SENT | {"TRANSACTION_CHECK_TIMES": "3"})
    make_half(sent, producer_group="billing", serial=0)
    record = decode_record(
        encode_record(
            topic=sent.topic, body=b"x", properties=sent.properties, sys_flag=sent.sys_flag
        )
    )
    half = half_of(record)
    assert half_fault(record) is None
    assert half is not None
    assert (half.topic, half.queue_id, half.key, half.group) == ("orders", 3, "AC11", "billing")


def test_the_group_of_the_request_counts_where_the_message_names_none() -> None:
    sent = Sent()
    del sent.properties["PGROUP"]
    make_half(sent, producer_group="billing", serial=0)
    assert sent.properties["PGROUP"] == "billing"


def test_one_message_object_in_two_transactions() -> None:
    names = set()
    for serial in range(2):
        sent = Sent()
        make_half(sent, producer_group="billing", serial=serial)
        names.add(sent.properties["__TL_TX"])
    assert len(names) == 2


@pytest.mark.parametrize(
    ("changes", "times", "expected"),
    [
        ({"TRAN_MSG": "TRUE"}, 0, True),
        ({"TRAN_MSG": "false"}, 0, False),
        ({"TRAN_MSG": ""}, 0, False),
        ({}, 2, True),
        ({"DELAY": "4"}, 2, False),
    ],
)
def test_which_sends_are_halves(changes: dict[str, str], times: int, *, expected: bool) -> None:
    assert is_half(Sent(properties=SENT | changes, reconsume_times=times)) is expected


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"UNIQ_KEY": ""}, "UNIQ_KEY of 1 to 80 characters, not 0"),
        ({"UNIQ_KEY": "x" * 81}, "not 81"),
        ({"DELAY": "3"}, "cannot be delayed (DELAY)"),
        ({"TIMER_DELAY_SEC": "3"}, "cannot be delayed (TIMER_DELAY_SEC)"),
    ],
)
def test_halves_that_are_refused(changes: dict[str, str], text: str) -> None:
    with pytest.raises(FormatError, match=re.escape(text)):
        make_half(Sent(properties=SENT | changes), producer_group="billing", serial=0)

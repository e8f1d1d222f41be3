"""Half messages and what follows from them, as a real broker of 5.5.0 stored them."""

import base64
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.constants import HALF_TOPIC, OP_HALF_TOPIC, PRODUCER_MARK, UNDECIDED_TOPIC
from tandemlog.format.delay.framing import name_of
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import Record, decode_record, encode_record
from tandemlog.format.transaction.half import (
    Half,
    committed_record,
    ended_halves,
    given_up_record,
    half_fault,
    half_of,
    half_properties,
    op_record,
)

PROPERTIES = {
    "UNIQ_KEY": "K1",
    "TAGS": "paid",
    **half_properties("orders", 3, group="billing", key="K1", transaction_id="T1"),
}


def half(properties: dict[str, str] | None = None, **fields: Any) -> Record:
    record = encode_record(
        topic=HALF_TOPIC, body=b"body", properties=properties or PROPERTIES, **fields
    )
    return decode_record(record)


def test_a_half_says_where_its_message_goes() -> None:
    record = half()
    assert half_of(record) == Half("orders", 3, "T1", "K1", "billing")
    assert half_fault(record) is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"REAL_TOPIC": ""}, "where its message goes"),
        ({"REAL_QID": "-1"}, "where its message goes"),
        ({"UNIQ_KEY": ""}, "must be the UNIQ_KEY"),
        ({"TRAN_MSG": "false"}, "TRAN_MSG must be true"),
        ({"PGROUP": ""}, "PGROUP must have 1 to"),
        ({"PGROUP": "g" * 256}, "PGROUP must have 1 to"),
        ({"__transactionId__": "other"}, "must be the UNIQ_KEY"),
        ({"__TL_TX": "x" * 129}, "128 characters"),
        ({"TRANSACTION_CHECK_TIMES": "2"}, "brokers only"),
    ],
)
def test_what_a_client_may_not_put(change: dict[str, str], fault: str) -> None:
    assert fault in str(half_fault(half({**PROPERTIES, **change})))


def test_bits_that_a_client_may_not_set() -> None:
    assert "transaction bits" in str(half_fault(half(sys_flag=8)))


def test_a_committed_message() -> None:
    marked = {**PROPERTIES, PRODUCER_MARK: "mark"}
    record = half(marked, sys_flag=1, flag=7, born_timestamp=5, physical_offset=900)
    committed = decode_record(committed_record(record, store_host="10.0.0.1:7"))
    assert (committed.topic, committed.queue_id, committed.body) == ("orders", 3, b"body")
    assert (committed.sys_flag, committed.flag, committed.born_timestamp) == (9, 7, 5)
    assert committed.prepared_transaction_offset == 900
    left_out = {"REAL_TOPIC", "REAL_QID", PRODUCER_MARK}
    assert committed.properties == {n: v for n, v in marked.items() if n not in left_out}


def test_the_half_at_the_begin_of_a_log_has_a_name() -> None:
    committed = decode_record(committed_record(half(), store_host="10.0.0.1:7"))
    assert committed.prepared_transaction_offset == name_of(0) == -1


def test_a_half_without_a_target_is_not_committed() -> None:
    with pytest.raises(FormatError, match="does not say where"):
        committed_record(half({"UNIQ_KEY": "K"}), store_host="10.0.0.1:7")


def test_a_half_that_is_given_up() -> None:
    record = decode_record(given_up_record(half(), UNDECIDED_TOPIC, store_host="10.0.0.1:7"))
    assert (record.topic, record.properties) == (UNDECIDED_TOPIC, PROPERTIES)
    assert record.prepared_transaction_offset == name_of(0)


@given(st.lists(st.integers(0, 1 << 50), max_size=50))
def test_an_op_record(offsets: list[int]) -> None:
    record = decode_record(op_record(offsets, now_ms=5, host="127.0.0.1:1"))
    assert (record.topic, record.queue_id, record.tags) == (OP_HALF_TOPIC, 0, "d")
    assert ended_halves(record) == offsets


@pytest.mark.parametrize(
    ("body", "tag", "ended"),
    [
        (b"40", "d", [40]),  # 4.x
        (b"40,41,", "d", [40, 41]),
        (b"40, 41", "d", [40, 41]),
        (b"40,x,\xff,42", "d", [40, 42]),
        (b"", "d", []),
        (b"40", "e", []),
    ],
)
def test_bodies_of_brokers(body: bytes, tag: str, ended: list[int]) -> None:
    record = encode_record(topic=OP_HALF_TOPIC, body=body, properties={"TAGS": tag})
    assert ended_halves(decode_record(record)) == ended


THEIR_HALF = (
    "c-muNV7z~8vBL7KCqX+HPyrK!ikb+a85jQf>T|Rn$Y5ZYS_0)CgYdQHqv^G2OTJwu)3IeSXXt#Vj*s^>p3gZFW-@8t"
    "!aWlo=`3;USbjo?y*Nlr_6gSwfBOx`cRIPZNvbZN)$`&Pud<3nkZ)joaAa_NNRXpnaJ+}3k6V0*e}Jbmqk(U*dwh_q"
    "yQjY&qf2U9VrfoEP-=Q+ejZb(pJ!maw`(M$n~MQHU}WrS>168W=3?YzWNv0*;bLauYzh>1W^(ok4GwV)VocA^Nnr|b"
    "5AqKUV08C%iO<PTOi3+bijOZTO3W)xOfCUh=a~{8Prgkdj_$#X&la>lU%QV9<i&WPuNX^;N>iDD9tdX4HZoIC$WE=)"
    "H8e6(c(HEL)845@W=!FZo*@uLKrPO$@xTxO^MYI*eW0P^SelYqqH72d3iNbgG++V%O-+fO"
)
THEIR_COMMIT = (
    "c-muNVBBzPvBL7KCqX+HPysK5n(zona4;}1F8uS==V(2U!N4%J1j>I4;cLxDXp5Q%By8G}Z<on*Y+1}1I^U_|<9&_i"
    "bB=_WOxm|_&%{SMOWZn^pAcd%4ib}n!ga&ne#7ydPVQ}zs>^5fy!gedtitYCnvz+fYse_%8|)q*<m&F}@5ktpnwD6a"
    "QxcS#o|&J=6zb<081L;G$>`={fDafMyIMM#y1BU+IT@LoSy;H3nK+vQg`Jt4eL{mnT!R?X^K(*|0^EcALjxGyJze5+"
    "@)J{1i<si$ONtWniW8GdfYy1Y#K)6wQ;4H`FypfY?a$ZlV+sj!^os}jim{}qG?fYHfndgLBQphs?9@tKLn9-F7wZ;1"
    "?VW05#uV=883IuR)Z*+K4-5e?4*+`zeZ~"
)


def test_a_commit_is_stored_as_a_broker_does() -> None:
    """A half and its committed message as 5.5.0 stored them: but for what the master says of the
    record, ours is the same."""
    before, theirs = (
        decode_record(zlib.decompress(base64.b85decode(text)))
        for text in (THEIR_HALF, THEIR_COMMIT)
    )
    assert half_of(before) is not None
    assert theirs.prepared_transaction_offset == before.physical_offset
    ours = decode_record(committed_record(before, store_host=theirs.store_host))
    stored = replace(
        ours,
        queue_offset=theirs.queue_offset,
        physical_offset=theirs.physical_offset,
        store_timestamp=theirs.store_timestamp,
    )
    assert stored == theirs

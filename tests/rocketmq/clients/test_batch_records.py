"""Records of a batch: the same bytes whether they are framed at once or message by message."""

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import decode_record
from tandemlog_server.rocketmq.clients.batch_records import batch_records
from tandemlog_server.rocketmq.clients.send_requests import MOST_IN_BATCH, split_batch
from tandemlog_server.rocketmq.clients.stored_message import StoredMessage, frame_stored
from tandemlog_server.rocketmq.clients.stored_properties import member_properties

COMMON = StoredMessage("orders", 3, {}, b"", 0, 0, 1_700_000_000_000)
MOST_BYTES = 100
HOSTS = ("10.0.0.7:51234", "[::1]:51234")


def member(flag: int, text: bytes, properties: bytes) -> bytes:
    size = 22 + len(text) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, flag, len(text))
    return head + text + struct.pack(">h", len(properties)) + properties


def at_once(body: bytes, host: str = HOSTS[0], common: StoredMessage = COMMON) -> list[bytes]:
    return batch_records(body, replace(common), host, store_ipv6=False, most_bytes=MOST_BYTES)


def one_by_one(body: bytes, host: str = HOSTS[0], common: StoredMessage = COMMON) -> list[bytes]:
    """What is stored, worked out for each message by itself."""
    return [
        frame_stored(
            replace(common, flag=each.flag, body=each.body),
            member_properties(each.properties),
            host,
            store_ipv6=False,
        )
        for each in split_batch(body)
    ]


PROPERTIES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [
            b"",
            b"a\x01b\x02",
            b"UNIQ_KEY\x01A\x02TAGS\x01t\x02",
            b"UNIQ_KEY\x01A",
            b"DELAY\x013\x02a\x01b\x02",
            b"REAL_TOPIC\x01x\x02",
            b"a\x01__b\x02",
            b"__STARTDELIVERTIME\x019\x02",
            b"TRAN_MSG\x01true\x02",
            b"\x02",
        ]
    ),
)
MEMBERS = st.lists(
    st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=9), PROPERTIES),
    min_size=1,
    max_size=5,
)


@given(MEMBERS, st.sampled_from(HOSTS), st.sampled_from([0, 4]))
def test_records_are_those_of_the_messages(
    members: list[tuple[int, bytes, bytes]], host: str, reconsume_times: int
) -> None:
    body = b"".join([member(*each) for each in members])
    common = replace(COMMON, reconsume_times=reconsume_times)
    assert at_once(body, host, common) == one_by_one(body, host, common)


@given(st.lists(PROPERTIES, max_size=3), st.data())
def test_any_bytes_end_as_they_would_one_by_one(
    properties: list[bytes], data: st.DataObject
) -> None:
    body = bytearray(b"".join([member(0, b"text", each) for each in properties]))
    for _ in range(data.draw(st.integers(0, 3)) if body else 0):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    assert outcome(at_once, bytes(body)) == outcome(one_by_one, bytes(body))


def outcome(records_of: Callable[[bytes], list[bytes]], body: bytes) -> list[bytes] | str:
    try:
        return records_of(body)
    except FormatError as fault:
        return str(fault)


def test_a_record_has_what_its_message_said() -> None:
    first, second = map(
        decode_record, at_once(member(7, b"one", b"a\x01b\x02") + member(-1, b"two", b"c\x01d\x02"))
    )
    assert (first.body, first.flag, first.properties_raw) == (b"one", 7, b"a\x01b\x02")
    assert (second.body, second.flag, second.properties_raw) == (b"two", -1, b"c\x01d\x02")
    assert {first.topic, second.topic} == {"orders"}
    assert (first.queue_id, first.born_host) == (3, HOSTS[0])


def test_a_text_that_is_too_long_is_refused_with_the_limit() -> None:
    body = member(0, b"x" * MOST_BYTES, b"a\x01b\x02")
    assert len(at_once(body)) == 1
    with pytest.raises(FormatError, match="101 bytes, the limit is 100"):
        at_once(body + member(0, b"x" * (MOST_BYTES + 1), b"a\x01b\x02"))


def test_more_messages_than_a_batch_may_have_are_refused() -> None:
    with pytest.raises(FormatError, match=str(MOST_IN_BATCH)):
        at_once(member(0, b"", b"a\x01b\x02") * (MOST_IN_BATCH + 1))

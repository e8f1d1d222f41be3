"""Stored records as clients of the 5.x API get them."""

import gzip
import zlib
from hashlib import md5
from typing import Any

import pytest

from tandemlog.format.record.record import Record, decode_record, encode_record
from tandemlog.format.record.sys_flag import COMPRESSED
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.messaging.delivered_messages import rendered


def record(properties: dict[str, str], body: bytes = b"x", **fields: Any) -> Record:
    data = encode_record(topic="Orders", body=body, properties=properties, **fields)
    return decode_record(data, check_crc=False)


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, v2.NORMAL),
        ({"__SHARDINGKEY": "g"}, v2.FIFO),
        ({"TIMER_OUT_MS": "1000"}, v2.DELAY),
        ({"DELAY": "3"}, v2.DELAY),
        ({"DELAY": "0"}, v2.NORMAL),
        ({"TRAN_MSG": "true"}, v2.TRANSACTION),
    ],
)
def test_the_type_of_a_message_is_in_its_properties(properties: dict[str, str], kind: int) -> None:
    assert rendered(record(properties)).system_properties.message_type == kind


def test_the_digest_is_over_the_body_as_it_travels() -> None:
    system = rendered(record({"UNIQ_KEY": "K"}, b"body")).system_properties
    assert system.body_digest.type == v2.MD5
    assert system.body_digest.checksum == md5(b"body").hexdigest().upper()


def test_a_body_is_packed_only_where_clients_can_unpack_it() -> None:
    packed = gzip.compress(b"body" * 9)
    message = rendered(record({}, packed, sys_flag=COMPRESSED))
    assert (message.body, message.system_properties.body_encoding) == (packed, v2.GZIP)
    message = rendered(record({}, zlib.compress(b"body" * 9), sys_flag=COMPRESSED))
    assert (message.body, message.system_properties.body_encoding) == (b"body" * 9, v2.IDENTITY)


def test_a_message_without_a_key_has_its_id_and_a_dead_letter_its_origin() -> None:
    stored = record({"DLQ_ORIGIN_TOPIC": "T", "DLQ_ORIGIN_MESSAGE_ID": "M"})
    system = rendered(stored).system_properties
    assert system.message_id == stored.msg_id
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == ("T", "M")

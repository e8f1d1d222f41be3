"""A message of a large batch has what its record has alone, whatever was asked of others."""

import pickle
import struct
from copy import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandemlog.consume.received.received_batch import ReceivedBatch
from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.errors import BadRecordError, TandemlogError
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import encode_record
from tandemlog.format.record.sys_flag import ZLIB, with_compression
from tandemlog.produce.framing import compressed

FIELDS = (
    "body", "born_host", "born_timestamp", "flag", "keys", "msg_id", "physical_offset",
    "properties", "queue_id", "queue_offset", "raw", "reconsume_times", "record", "sharding_key",
    "size", "store_host", "store_time", "store_timestamp", "tags", "topic", "uniq_key", "__repr__",
)  # fmt: skip
"""All that a message has to be asked for."""

PROPERTIES = st.sampled_from(
    [
        b"", b"\x02", b"KEYS", b"\x01v\x02", b"v\x02\x01KEYS\x01w\x02",
        b"KEYS\x01a\x02TAGS\x01x\x02", b"KEYS\x01b\x02TAGS\x01yy\x02",
        b"KEYS\x01a b  c\x02TAGS\x01x\x02", b"KEYS\x01a\x02TAGS\x01x",
        b"TAGS\x01x\x02KEYS\x01a\x02", b"KEYS\x01\x02TAGS\x01x\x02",
        b"KEYS\x01\xff\x02TAGS\x01x\x02", b"KEYS\x01a\x01b\x02TAGS\x01x\x02",
        "KEYS\x01\u00e9 \u00fc\x02TAGS\x01x\x02".encode(), b"TAGS\x01x\x02TAGS\x01y\x02",
        b"UNIQ_KEY\x01U\x02__SHARDINGKEY\x01s\x02",
    ]
)  # fmt: skip
PACKED, PACKED_FLAG = compressed(b"abc" * 50)
BODIES = st.sampled_from(
    [
        (b"", 0), (b"x", 0), (b"x" * 300, 0), (PACKED, PACKED_FLAG), (b"not packed", PACKED_FLAG),
        (b"", with_compression(0, ZLIB)),
    ]
)  # fmt: skip
HOSTS = st.sampled_from(["1.2.3.4:5", "[0:0:0:0:0:0:0:1]:5"])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """One record; now and then a damaged one."""
    body, flag = draw(BODIES)
    raw = encode_record(
        topic=draw(st.sampled_from(["t", "u", "\u00e9", "x" * 130])),
        body=body,
        sys_flag=flag,
        properties=draw(PROPERTIES),
        queue_id=draw(st.integers(0, 3)),
        flag=draw(st.integers(0, 3)),
        queue_offset=draw(st.integers(0, 1 << 40)),
        physical_offset=draw(st.integers(0, 1 << 40)),
        born_timestamp=draw(st.integers(0, 1 << 40)),
        store_timestamp=draw(st.integers(0, 1 << 40)),
        born_host=draw(HOSTS),
        store_host=draw(HOSTS),
        reconsume_times=draw(st.integers(0, 3)),
    )
    if draw(st.integers(0, 9)):
        return raw
    damaged = bytearray(raw)
    damaged[draw(st.integers(0, len(raw) - 1))] ^= draw(st.integers(1, 255))
    return bytes(damaged)


def batch_of(given: list[bytes]) -> ReceivedBatch:
    view = memoryview(b"in front" + b"".join(given) + b"behind")[8:-6]
    sizes = np.array([len(record) for record in given], np.uint32)
    return ReceivedBatch("t", 0, "FOUND", 0, 0, 0, view, sizes)


def value_of(message: ReceivedMessage, name: str) -> object:
    """Of the field, or what asking for it raises."""
    try:
        value = getattr(message, name)
        return value() if callable(value) else value
    except (TandemlogError, FormatError) as error:
        return type(error), str(error)
    except (struct.error, OverflowError, ValueError) as error:  # a damaged time
        return type(error)


@given(
    kinds=st.lists(records(), min_size=1, max_size=8),
    order=st.lists(st.integers(0, 7), min_size=16, max_size=40),
    asked=st.lists(st.lists(st.sampled_from(FIELDS), max_size=5), min_size=1, max_size=5),
    times=st.sampled_from([1, 1, 12]),
)
@settings(max_examples=100, deadline=None)
def test_a_message_has_what_its_record_has_alone(
    kinds: list[bytes], order: list[int], asked: list[list[str]], times: int
) -> None:
    chosen = [kinds[number % len(kinds)] for number in order] * times
    kept = []
    batch = batch_of(chosen)
    for number, message in enumerate(batch):
        alone = batch[number]
        for name in asked[number * len(asked) // len(chosen)]:
            assert value_of(message, name) == value_of(alone, name), name
        if number % 37 == 0:
            kept.append((message, alone))
    for message, alone in kept:
        for name in FIELDS:
            assert value_of(message, name) == value_of(alone, name), name


def test_what_was_asked_for_is_in_the_slots_of_the_next_piece() -> None:
    raw = encode_record(topic="t", body=b"x", properties={"KEYS": "a"})
    messages = iter(batch_of([raw] * 40))
    first = next(messages)
    assert (first.body, first.keys) == (b"x", ["a"])
    *_, last = messages
    assert [*type(last).__slots__] == ["body", "keys"]
    assert (last.body, last.keys, last.topic) == (b"x", ["a"], "t")
    assert isinstance(last, ReceivedMessage)
    assert not hasattr(last, "nothing")
    with pytest.raises(AttributeError):
        last.topic = "u"  # type: ignore[misc]


def test_a_copy_has_the_bytes_of_its_record_alone() -> None:
    """Not the records of its batch, which are no part of it."""
    given = [encode_record(topic="t", body=b"%d" % number) for number in range(40)]
    for message in batch_of(given):
        body = message.body
        for other in (copy(message), pickle.loads(pickle.dumps(message))):
            assert (other.body, other.raw) == (body, message.raw)
            assert type(other) is ReceivedMessage
    assert len(pickle.dumps(message)) < 400


@pytest.mark.parametrize("size", [10, 38, 86, 87])
def test_of_a_record_that_came_in_part_no_body_is_read_from_the_next_one(size: int) -> None:
    record = encode_record(topic="t", body=b"", queue_id=0, properties=b"KEYS\x01a\x02")
    alone = ReceivedMessage(record[:size], 0, size)
    before_another = ReceivedMessage(record, 0, size)
    for message in (alone, before_another, copy(alone)):
        with pytest.raises(BadRecordError):
            _ = message.body

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.fake_cluster import running_cluster
from tandemlog import Consumer, Message, Producer
from tandemlog.consume.received import received_batch
from tandemlog.consume.received.received_batch import ReceivedBatch, messages_of
from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.errors import BadRecordError
from tandemlog.format.record.record import encode_record
from tandemlog.format.record.sys_flag import ZLIB, with_compression
from tandemlog.produce.framing import compressed

FIELDS = (
    "body", "keys", "tags", "properties", "record", "raw", "size", "topic", "queue_offset",
    "physical_offset", "born_host", "uniq_key", "flag",
)  # fmt: skip


def batch_of(records: list[bytes], next_offset: int = 0) -> ReceivedBatch:
    return ReceivedBatch(
        topic="t",
        queue_id=0,
        status="FOUND",
        next_offset=next_offset,
        min_offset=0,
        max_offset=len(records),
        records=b"".join(records),
        sizes=np.array([len(record) for record in records], np.uint32),
    )


def record(number: int, tags: str | None = None, **fields: object) -> bytes:
    properties = {} if tags is None else {"TAGS": tags}
    return encode_record(
        topic="t",
        body=b"body %d" % number,
        properties=properties,
        queue_offset=number,
        physical_offset=1000 + number,
        **fields,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("born", ["1.2.3.4:5", "[0:0:0:0:0:0:0:1]:5"])
@pytest.mark.parametrize("store", ["9.9.9.9:1", "[0:0:0:0:0:0:0:2]:1"])
def test_a_message_shows_the_fields_of_its_record(born: str, store: str) -> None:
    raw = encode_record(
        topic="orders",
        body=b"hello",
        properties={"KEYS": "a b", "TAGS": "x", "UNIQ_KEY": "U", "mine": "1"},
        queue_id=3,
        queue_offset=7,
        physical_offset=99,
        flag=5,
        born_timestamp=11,
        store_timestamp=22,
        born_host=born,
        store_host=store,
    )
    message = ReceivedMessage(b"..." + raw + b"...", 3, len(raw))
    assert message.body == b"hello"
    assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 3, 7)
    assert (message.physical_offset, message.flag, message.raw) == (99, 5, raw)
    assert (message.keys, message.tags, message.uniq_key) == (["a", "b"], "x", "U")
    assert (message.born_timestamp, message.born_host) == (11, born)
    assert (message.store_timestamp, message.store_host) == (22, store)
    assert message.store_time.timestamp() == 0.022
    assert message.properties["mine"] == "1"
    assert len(message.msg_id) in (32, 56)
    assert "queue_offset=7" in repr(message)


def test_a_compressed_body_comes_back_plain() -> None:
    body, flag = compressed(b"abc" * 50)
    assert flag == with_compression(0, ZLIB)
    raw = encode_record(topic="t", body=body, sys_flag=flag)
    assert ReceivedMessage(raw, 0, len(raw)).body == b"abc" * 50


@given(position=st.integers(88, 90))
def test_a_damaged_body_is_an_error_that_names_it(position: int) -> None:
    raw = bytearray(encode_record(topic="t", body=b"xyz"))
    raw[position] ^= 1
    with pytest.raises(BadRecordError, match="body_crc") as caught:
        _ = ReceivedMessage(bytes(raw), 0, len(raw)).body
    assert caught.value.field == "body_crc"


def test_a_body_length_beyond_the_record_is_an_error() -> None:
    raw = bytearray(encode_record(topic="t", body=b"xyz"))
    struct.pack_into(">i", raw, 84, 1 << 20)
    with pytest.raises(BadRecordError):
        _ = ReceivedMessage(bytes(raw), 0, len(raw)).body


def test_a_batch_is_a_sequence_of_messages() -> None:
    batch = batch_of([record(number) for number in range(4)])
    assert [message.body for message in batch] == [b"body %d" % number for number in range(4)]
    assert batch[2].queue_offset == 2
    assert len(batch) == 4
    assert batch.headers.queue_offset.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [4, 40, 600])
def test_damage_is_an_error_of_its_message_alone(count: int) -> None:
    records = [record(number, f"tag{number}") for number in range(count)]
    damaged = bytearray(records[3])
    damaged[90] ^= 1
    records[3] = bytes(damaged)
    position = sum(map(len, records[:3]))
    with pytest.raises(BadRecordError) as alone:
        _ = ReceivedMessage(b"".join(records), position, len(damaged)).body
    messages = list(batch_of(records))
    for part in ("body", "keys", "tags", "properties", "record"):
        for number, message in enumerate(messages):
            if number != 3:
                getattr(message, part)
                continue
            with pytest.raises(BadRecordError) as caught:
                getattr(message, part)
            assert str(caught.value) == str(alone.value)
    assert messages[3].queue_offset == 3, "the header is not what the CRC is of"


@given(
    damaged=st.sets(st.integers(0, 699), max_size=5),
    asked=st.lists(st.sampled_from(FIELDS[:4]), min_size=1, max_size=6),
)
@settings(max_examples=30)
def test_a_loop_reads_what_each_message_has_alone(damaged: set[int], asked: list[str]) -> None:
    """Whatever the messages before were asked for, and so is decoded in advance."""
    records = [record(number, f"tag{number}") for number in range(700)]
    for number in damaged:
        records[number] = records[number].replace(b"body", b"bodu")
    for number, message in enumerate(batch_of(records)):
        alone = ReceivedMessage(records[number], 0, len(records[number]))
        name = asked[number * len(asked) // 700]
        assert value_of(message, name) == value_of(alone, name)


def value_of(message: ReceivedMessage, name: str) -> object:
    try:
        return getattr(message, name)
    except BadRecordError as error:
        return error.field


def test_messages_of_a_large_batch_are_what_they_are_alone() -> None:
    body, flag = compressed(b"abc" * 50)
    records = [
        encode_record(
            topic="t",
            body=body if number % 7 == 0 else b"body %d" % number,
            sys_flag=flag if number % 7 == 0 else 0,
            properties={"KEYS": f"a{number} b", "TAGS": "x"} if number % 300 else {},
            queue_offset=number,
            born_host="[0:0:0:0:0:0:0:1]:5" if number % 5 == 0 else "1.2.3.4:5",
        )
        for number in range(600)
    ]
    position = 0
    for message, raw in zip(batch_of(records), records, strict=True):
        alone = ReceivedMessage(b"".join(records), position, len(raw))
        position += len(raw)
        for name in FIELDS:
            assert getattr(message, name) == getattr(alone, name), name
        assert repr(message) == repr(alone)
        assert isinstance(message, ReceivedMessage)
        assert not hasattr(message, "nothing")


def test_only_the_tags_that_were_asked_for_not_those_of_the_same_hash() -> None:
    # "AaBB" and "BBAa" have the same Java hash.
    batch = batch_of([record(n, tag) for n, tag in enumerate(["AaBB", "BBAa", None, "AaBB", "x"])])
    some = batch.only_tags(frozenset({"AaBB", "y"}))
    assert [message.queue_offset for message in some] == [0, 3]
    assert len(batch.only_tags(frozenset({"none"}))) == 0
    everything = frozenset({"AaBB", "BBAa", "x"})
    assert [message.queue_offset for message in batch.only_tags(everything)] == [0, 1, 3, 4]
    assert batch.only_tags(None) is batch


@pytest.mark.parametrize("count", [1, 15, 16, 40])
@pytest.mark.parametrize("numpy", [True, False])
def test_a_damaged_record_is_not_taken_for_one_of_another_tag(
    count: int, numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_batch, "HAVE_NUMPY", numpy)
    records = [record(number, "x") for number in range(count)]
    properties = b"TAGS\x01x\x02" if records[0].endswith(b"\x02") else b"TAGS\x01x"
    at = len(records[-1]) - len(properties) - 2
    length = struct.unpack_from(">h", records[-1], at)[0]
    assert length == len(properties)
    for wrong in (length - 1, length + 1):
        damaged = records[-1][:at] + struct.pack(">h", wrong) + records[-1][at + 2 :]
        batch = batch_of([*records[:-1], damaged]).only_tags(frozenset({"x"}))
        assert len(batch) == count
        with pytest.raises(BadRecordError):
            assert batch[count - 1].properties


def test_the_messages_in_front_of_an_offset() -> None:
    batch = batch_of([record(number) for number in range(4)], next_offset=4)
    head = batch.before(2)
    assert [message.queue_offset for message in head] == [0, 1]
    assert head.next_offset == 2
    assert len(batch.before(9)) == 4


def test_the_messages_of_a_query() -> None:
    raw = [record(1), record(2)]
    sizes = np.array([len(each) for each in raw], "<u4").tobytes()
    assert [each.body for each in messages_of(b"".join(raw), sizes)] == [b"body 1", b"body 2"]


@pytest.mark.parametrize("count", [1, 40])
def test_a_message_has_the_sharding_key_that_it_was_sent_with(count: int) -> None:
    with running_cluster() as cluster:
        cluster.call(lambda: cluster.log.create_topic("orders", 1))
        with Producer(cluster.endpoints) as producer:
            many = [Message("orders", b"x", sharding_key="customer-7")] * count
            producer.send_many(None, [*many, Message("orders", b"y")])
        with Consumer(cluster.endpoints) as consumer, consumer.follow("orders") as stream:
            batch = stream.next_batch(10_000)
            assert batch is not None
            assert [each.sharding_key for each in batch] == ["customer-7"] * count + [None]

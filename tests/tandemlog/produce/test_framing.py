import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog import errors
from tandemlog.format.constants import PRODUCER_MARK
from tandemlog.format.record.record import decode_record
from tandemlog.format.record.sys_flag import decompress_body
from tandemlog.message import Message
from tandemlog.produce.framing import MARK_ROOM, RESERVED_PROPERTIES, Framer, with_property

TEXT = st.text(st.characters(blacklist_categories=["Cs"], min_codepoint=3), min_size=1, max_size=30)
NAMES = TEXT.filter(lambda name: name not in RESERVED_PROPERTIES and "__RMQ" not in name)


@given(
    body=st.binary(max_size=300),
    keys=st.lists(TEXT.filter(lambda key: " " not in key), max_size=3),
    tags=st.one_of(st.just(""), TEXT),
    properties=st.dictionaries(NAMES, TEXT, max_size=4),
    queue_id=st.integers(0, 65535),
    flag=st.integers(-(2**31), 2**31 - 1),
    born=st.one_of(st.none(), st.integers(0, 2**62)),
)
def test_a_framed_message_is_the_record_of_it(
    body: bytes,
    keys: list[str],
    tags: str,
    properties: dict[str, str],
    queue_id: int,
    flag: int,
    born: int | None,
) -> None:
    framer = Framer(born_address="10.1.2.3", now_ms=lambda: 77)
    message = Message("orders", body, keys, tags, properties, flag=flag, born_timestamp=born)
    record = decode_record(framer.frame(message, queue_id))
    assert (record.topic, record.body, record.queue_id, record.flag) == (
        "orders",
        body,
        queue_id,
        flag,
    )
    assert record.born_timestamp == (77 if born is None else born)
    assert record.born_host == "10.1.2.3:0"
    assert (record.queue_offset, record.physical_offset, record.store_timestamp) == (0, 0, 0)
    expected = dict(properties)
    if keys:
        expected["KEYS"] = " ".join(keys)
    if tags:
        expected["TAGS"] = tags
    assert record.uniq_key is not None
    assert record.properties == expected | {"UNIQ_KEY": record.uniq_key}


@given(topic=st.sampled_from(["t", "x" * 127, "%RETRY%" + "g" * 130]), body=st.binary(max_size=50))
def test_a_property_is_added_to_a_framed_record(topic: str, body: bytes) -> None:
    for address in ("10.0.0.1", "::1"):
        framer = Framer(born_address=address, store_ipv6=address == "::1")
        framed = framer.frame(Message(topic, body, keys="k", properties={"a": "b"}), 1)
        before, after = decode_record(framed), decode_record(with_property(framed, "__TL_SEQ", "v"))
        assert after.properties == before.properties | {"__TL_SEQ": "v"}
        assert (after.body, after.topic, after.body_crc) == (body, topic, before.body_crc)


def test_a_property_is_added_to_a_record_without_any() -> None:
    framed = Framer(unique_ids=False).frame(Message("t", b"x"), 0)
    assert decode_record(with_property(framed, "n", "v")).properties == {"n": "v"}


def test_unique_ids_differ_within_a_millisecond_and_between_framers() -> None:
    framers = [Framer(now_ms=lambda: 5), Framer(now_ms=lambda: 5)]
    ids = {
        decode_record(framer.frame(Message("t", b""), 0)).uniq_key
        for framer in framers
        for _ in range(2000)
    }
    columns = framers[0].unique_id_column(5000)
    ids |= {
        columns.data[start : start + 32].tobytes().decode()
        for start in columns.offsets[:-1].tolist()
    }
    assert len(ids) == 9000
    assert all(uniq_key is not None and len(uniq_key) == 32 for uniq_key in ids)


@pytest.mark.parametrize(
    "name", ["KEYS", "DELAY", "WAIT", "TRAN_MSG", PRODUCER_MARK, "__RMQ.TRANSIENT.x"]
)
def test_the_stores_own_properties_are_refused(name: str) -> None:
    with pytest.raises(errors.ReservedPropertyError, match=f"{name}.*reserved") as caught:
        Framer().frame(Message("t", b"", properties={"mine": "1", name: "1"}), 0)
    assert caught.value.field == "properties"


def test_what_is_too_large_names_its_limit() -> None:
    framer = Framer(max_body=10)
    with pytest.raises(errors.MessageTooLargeError) as body:
        framer.frame(Message("t", b"x" * 11), 0)
    assert (body.value.limit, body.value.actual) == (10, 11)
    with pytest.raises(errors.PropertiesTooLargeError) as properties:
        framer.frame(Message("t", b"", properties={"a": "x" * 32_700}), 0)
    assert properties.value.limit == 32_767 - MARK_ROOM


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"", keys="a\x02b"),
        Message("t", b"", tags="a\x02b"),
        Message("t", b"", keys=["a b"]),
        Message("t", b"", keys=["a", ""]),
        Message("t", b"", properties={"": "x"}),
        Message("t", b"", properties={"x": ""}),
        Message("t", b"", properties={"a\x01b": "x"}),
        Message("t", b"", properties={"a": "x\x02"}),
        Message("t", b"", keys="\ud800"),
        Message("t", b"", flag=1 << 40),
        Message("t", "text"),  # type: ignore[arg-type]
    ],
)
def test_what_has_no_stored_form_is_an_invalid_message(message: Message) -> None:
    with pytest.raises(errors.InvalidMessageError):
        Framer().frame(message, 0)


@pytest.mark.parametrize("topic", ["", "a b", "x" * 256, "SCHEDULE_TOPIC_XXXX", "rmq_sys_x"])
def test_topics_that_nobody_may_send_to(topic: str) -> None:
    with pytest.raises(errors.InvalidTopicNameError):
        Framer().frame(Message(topic, b""), 0)


def test_large_bodies_are_compressed_where_it_pays() -> None:
    framer = Framer(compress_above=100)
    body = b"abc" * 100
    record = decode_record(framer.frame(Message("t", body), 0))
    assert len(record.body) < len(body)
    assert zlib.decompress(record.body) == body
    assert decompress_body(record.sys_flag, record.body) == body
    random_body = bytes(range(256))
    assert decode_record(framer.frame(Message("t", random_body), 0)).sys_flag == 0
    assert decode_record(framer.frame(Message("t", b"abc"), 0)).body == b"abc"

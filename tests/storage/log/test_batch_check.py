"""Every way in which a client's batch can lie, on both paths: few records, and many."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.batches import Put, batch_of
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.properties import encode_properties
from tandemlog.format.record.sys_flag import (
    INNER_BATCH,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.log import batch_check as append_check
from tandemlog_server.storage.log.batch_check import (
    FEW_RECORDS,
    check_batch,
    first_difference,
    topic_table,
)
from tandemlog_server.storage.log.record_check import RecordLimits

LIMITS = RecordLimits(max_body=4096, max_batch=1 << 20, max_record=8000, store_host_ipv6=False)
FEW, MANY = 5, FEW_RECORDS + 40
TARGET = 3  # the record that is spoilt

PUTS = [
    Put(queue_id=number % 3, body=bytes([number % 250]) * (20 + number)) for number in range(MANY)
]


def puts(count: int, target: Put | None = None) -> list[Put]:
    found = PUTS[:count]
    if target is not None:
        found[TARGET] = target
    return found


def refusal(batch: RecordBatch, limits: RecordLimits = LIMITS) -> BatchRefusedError:
    with pytest.raises(BatchRefusedError) as refused:
        check_batch(batch, limits)
    return refused.value


def position(batch: RecordBatch, index: int = TARGET) -> int:
    return int(batch.sizes[:index].sum())


def spoilt(batch: RecordBatch, at: int, value: bytes) -> RecordBatch:
    """Bytes of record TARGET overwritten, from `at` inside it."""
    data = bytearray(batch.records)
    start = position(batch) + at
    data[start : start + len(value)] = value
    return replace(batch, records=bytes(data))


@pytest.mark.parametrize("count", [1, FEW, FEW_RECORDS - 1, FEW_RECORDS, MANY])
def test_a_good_batch(count: int) -> None:
    batch = batch_of(puts(count))
    checked = check_batch(batch, LIMITS)
    assert checked.sizes.tolist() == batch.sizes.tolist()
    assert checked.positions.tolist() == [position(batch, index) for index in range(count)]
    assert checked.counted is None


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("count", [FEW, MANY])
def test_any_buffer(count: int, kind: Callable[[bytes], bytes | bytearray | memoryview]) -> None:
    batch = batch_of(puts(count))
    check_batch(replace(batch, records=kind(bytes(batch.records))), LIMITS)


GOOD = [
    Put(topic="a" * 127),
    Put(topic="%RETRY%" + "g" * 200),
    Put(topic="TopicTest", version=2),
    Put(topic="主题"),
    Put(body=b""),
    Put(body=b"x" * 4096),
    Put(properties=b""),
    Put(properties=b"K\x01" + b"v" * 3000 + b"\x02"),
    Put(born_host="[::1]:7"),
    Put(properties=b"__CRC32#\x010123456789\x02TAGS\x01a\x02"),  # not at the end: only a name
]


@pytest.mark.parametrize("put", GOOD)
@pytest.mark.parametrize("count", [FEW, MANY])
def test_what_is_taken(count: int, put: Put) -> None:
    check_batch(batch_of(puts(count, put)), LIMITS)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_transactions_are_counted_as_rocketmq_does(count: int) -> None:
    kinds = [TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK]
    mixed = [Put(sys_flag=kind) for kind in kinds] + puts(count)
    checked = check_batch(batch_of(mixed), replace(LIMITS, services=True))
    assert checked.counted is not None
    assert checked.counted.tolist() == [False, True, False] + [True] * count


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("at", [0, TARGET])
@pytest.mark.parametrize(
    "name",
    ["DELAY", "TRAN_MSG", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS",
     "TIMER_DEL_UNIQKEY"],
)  # fmt: skip
def test_what_no_service_acts_on_is_refused_by_name(count: int, at: int, name: str) -> None:
    asking = puts(count)
    for properties in (b"%s\x013\x02", b"TAGS\x01a\x02%s\x013", b"k\x01L\x02%s\x01true\x02"):
        asking[at] = Put(properties=properties % name.encode())
        fault = refusal(batch_of(asking))
        assert (fault.code, fault.field, fault.record_index) == ("BAD_RECORD", "properties", at)
        assert name in str(fault)
        check_batch(batch_of(asking), replace(LIMITS, services=True))
    asking[at] = Put(properties=b"MY_%s\x013\x02L\x01%s\x02" % (name.encode(), name.encode()))
    check_batch(batch_of(asking), LIMITS)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("kind", [TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])
def test_messages_of_transactions_are_refused(count: int, kind: int) -> None:
    asking = puts(count)
    asking[TARGET] = Put(sys_flag=kind)
    fault = refusal(batch_of(asking))
    assert (fault.code, fault.field, fault.record_index) == ("BAD_RECORD", "sys_flag", TARGET)
    assert "transaction" in str(fault)


def test_ipv6_stores_want_ipv6_records() -> None:
    limits = replace(LIMITS, store_host_ipv6=True)
    for count in (FEW, MANY):
        many = [replace(put, store_host="[::]:0") for put in puts(count)]
        check_batch(batch_of(many), limits)
        many[TARGET] = Put()
        fault = refusal(batch_of(many), limits)
        assert (fault.code, fault.field, fault.record_index) == ("BAD_RECORD", "sys_flag", TARGET)
        assert "IPv6" in str(fault)


SPOILT: dict[str, tuple[int, bytes, str]] = {
    "magic": (4, b"\xda\xa3\x20\xa8", "magic"),
    "blank magic": (4, b"\xcb\xd4\x31\x94", "magic"),
    "size": (0, b"\0\0\0\x7f", "size"),
    "body crc": (8, b"\0\0\0\0", "body_crc"),
    "queue id": (12, b"\0\0\0\x07", "queue_id"),
    "negative body length": (84, b"\xff\xff\xff\xff", "body"),
    "long body": (84, b"\0\0\0\xf0", "body"),
    "body": (90, b"!", "body_crc"),
    "inner batch": (36, bytes([0, 0, 0, INNER_BATCH]), "sys_flag"),
    "store host": (36, bytes([0, 0, 0, 0x20]), "sys_flag"),
    "topic length": (88 + 23, b"\x08", "topic"),
    "negative topic length": (88 + 23, b"\xff", "topic"),
    "no topic": (88 + 23, b"\x00", "topic"),
    "topic": (88 + 23 + 3, b"Q", "topic"),
    "properties length": (88 + 23 + 10, b"\0\x09", "properties"),
    "version": (4, b"\xda\xa3\x20\xab", "topic"),
}


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_bytes_are_named(case: str, count: int) -> None:
    at, value, field = SPOILT[case]
    fault = refusal(spoilt(batch_of(puts(count)), at, value))
    assert (fault.code, fault.field, fault.record_index) == ("BAD_RECORD", field, TARGET)
    assert f"record {TARGET}" in str(fault)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_the_first_fault_counts(count: int) -> None:
    batch = spoilt(batch_of(puts(count)), 90, b"!")
    data = bytearray(batch.records)
    data[position(batch, 1) + 88 + 21 + 3] ^= 0xFF  # the topic of record 1
    fault = refusal(replace(batch, records=bytes(data)))
    assert (fault.field, fault.record_index) == ("topic", 1)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_property_crc_is_refused(count: int) -> None:
    fault = refusal(batch_of(puts(count, Put(property_crc=True))))
    assert (fault.code, fault.field, fault.record_index) == ("BAD_RECORD", "properties", TARGET)
    assert "__CRC32#" in str(fault)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_numbers_of_light_queues_are_refused(count: int) -> None:
    """They would put units into a queue of another topic, with any number."""
    numbers = {"INNER_MULTI_DISPATCH": "orders", "INNER_MULTI_QUEUE_OFFSET": "1"}
    fault = refusal(batch_of(puts(count, Put(properties=encode_properties(numbers)))))
    assert (fault.code, fault.field, fault.record_index) == ("BAD_RECORD", "properties", TARGET)
    assert "INNER_MULTI_QUEUE_OFFSET is written by brokers only" in str(fault)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_long_properties_with_a_zero_byte_are_refused(count: int) -> None:
    for size, taken in ((4000, True), (4200, False)):
        properties = encode_properties({"document": "x" * size + "\0", "a": "b"})
        batch = batch_of(puts(count, Put(properties=properties)))
        if taken:
            check_batch(batch, LIMITS)
        else:
            assert "what a lost page looks like" in str(refusal(batch))


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("properties", [b"\0", b"K\x01v\0", b"K\x01v\x02\0\0", b"\0" * 9])
def test_properties_that_end_as_a_torn_write_does_are_refused(
    properties: bytes, count: int
) -> None:
    """After a crash nobody could tell the one from the other, and the record would be cut."""
    fault = refusal(batch_of(puts(count, Put(properties=properties))))
    assert (fault.code, fault.field, fault.record_index) == ("BAD_RECORD", "properties", TARGET)
    assert "what a torn write looks like" in str(fault)


MARK = b"__TL_SEQ\x01p,0,0,0,5\x02"


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("properties", [MARK, b"A\x01b\x02" + MARK, b"A\x01b" + MARK])
def test_a_mark_behind_the_first_record_is_refused(properties: bytes, count: int) -> None:
    """Dispatch would believe it, and the put knows nothing of it."""
    for body in (b"x", b"xx", MARK):  # at an even place, and at an odd one
        fault = refusal(batch_of(puts(count, Put(body=body, properties=properties))))
        assert (fault.code, fault.field, fault.record_index) == ("BAD_RECORD", "properties", TARGET)
        assert "__TL_SEQ may be in the first record of a request only" in str(fault)


def test_a_mark_beside_much_longer_properties_is_refused() -> None:
    """Properties of much unlike lengths are searched one by one, not as rows of one width."""
    many = puts(MANY, Put(properties=MARK))
    many[MANY - 1] = Put(properties=encode_properties({"document": "x" * 3_000}))
    fault = refusal(batch_of(many))
    assert (fault.code, fault.field, fault.record_index) == ("BAD_RECORD", "properties", TARGET)


@pytest.mark.parametrize("count", [1, FEW, MANY])
@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (MARK * 2, "twice"),
        (b"A\x01b" + MARK, "inside another property"),
        (b"__TL_SEQ\x01\x02", "is not"),
        (b"__TL_SEQ\x01p,0\x02", "is not"),
        (b"__TL_SEQ\x01", "is not"),
    ],
)
def test_a_mark_that_may_be_read_in_two_ways_is_refused(
    properties: bytes, reason: str, count: int
) -> None:
    many = [Put(properties=properties), *puts(count)[1:]]
    fault = refusal(batch_of(many))
    assert (fault.code, fault.field, fault.record_index) == ("BAD_RECORD", "properties", 0)
    assert reason in str(fault)
    check_batch(batch_of([Put(properties=MARK), *puts(count)[1:]]), LIMITS)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_bodies_may_say_anything(count: int) -> None:
    said = Put(body=(b"INNER_MULTI_QUEUE_OFFSET\x011\x02" + MARK) * 3, properties=b"a\x01b\x02")
    batch = batch_of(puts(count, said))
    assert check_batch(batch, LIMITS).sizes.tolist() == batch.sizes.tolist()


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize(
    ("put", "limits", "part", "limit"),
    [
        (Put(body=b"x" * 4097), LIMITS, "body", 4096),
        (Put(body=b"x" * 900), replace(LIMITS, max_record=700), "record", 700),
    ],
)
def test_limits(count: int, put: Put, limits: RecordLimits, part: str, limit: int) -> None:
    fault = refusal(batch_of(puts(count, put)), limits)
    assert (fault.code, fault.field, fault.limit) == ("MESSAGE_TOO_LARGE", part, limit)
    assert fault.actual > limit
    assert fault.record_index == TARGET


@pytest.mark.parametrize("count", [FEW, MANY])
def test_too_many_properties(count: int) -> None:
    # framed by hand: their length does not fit the field, and says 0
    plain = Put(properties=b"")
    batch = batch_of(puts(count, plain))
    start = position(batch)
    end = start + int(batch.sizes[TARGET])
    record = bytearray(batch.records[start:end]) + b"x" * 32768
    record[0:4] = len(record).to_bytes(4, "big")
    sizes = batch.sizes.copy()
    sizes[TARGET] = len(record)
    records = bytes(batch.records[:start]) + bytes(record) + bytes(batch.records[end:])
    limits = replace(LIMITS, max_record=1 << 20)
    fault = refusal(replace(batch, records=records, sizes=sizes), limits)
    assert (fault.code, fault.field) == ("PROPERTIES_TOO_LARGE", "properties")
    assert (fault.limit, fault.actual, fault.record_index) == (32767, 32768, TARGET)


def test_a_batch_above_its_limit() -> None:
    batch = batch_of(puts(FEW))
    fault = refusal(batch, replace(LIMITS, max_batch=batch.byte_size - 1))
    assert (fault.code, fault.limit, fault.actual) == (
        "BATCH_TOO_LARGE",
        batch.byte_size - 1,
        batch.byte_size,
    )


def u4(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.array(values, np.uint32)


COLUMNS: dict[str, tuple[Callable[[RecordBatch], RecordBatch], str, str]] = {
    "none at all": (
        lambda b: replace(b, records=b"", sizes=u4(), queue_indexes=np.array([], np.uint16)),
        "INVALID_ARGUMENT",
        "sizes",
    ),
    "too few indexes": (
        lambda b: replace(b, queue_indexes=b.queue_indexes[:-1]),
        "INVALID_ARGUMENT",
        "queue_indexes",
    ),
    "an index outside the table": (
        lambda b: replace(b, queue_indexes=b.queue_indexes + np.uint16(1)),
        "INVALID_ARGUMENT",
        "queue_indexes",
    ),
    "an empty table": (
        lambda b: replace(b, queue_topics=u4(), queue_ids=u4()),
        "INVALID_ARGUMENT",
        "queue_ids",
    ),
    "half a table": (
        lambda b: replace(b, queue_topics=b.queue_topics[:-1]),
        "INVALID_ARGUMENT",
        "queue_topics",
    ),
    "a topic outside the table": (
        lambda b: replace(b, queue_topics=b.queue_topics + np.uint32(1)),
        "INVALID_ARGUMENT",
        "queue_topics",
    ),
    "sizes that miss a byte": (
        lambda b: replace(b, records=bytes(b.records) + b"\0"),
        "BAD_RECORD",
        "sizes",
    ),
    "a size below any record": (
        lambda b: replace(
            b,
            sizes=np.concatenate([b.sizes[:-1], u4(90)]),
            records=b.records[: int(b.sizes[:-1].sum()) + 90],
        ),
        "BAD_RECORD",
        "size",
    ),
    "sizes that wrap": (
        lambda b: replace(b, sizes=np.full(len(b.sizes), 2**32 - 1, np.uint32)),
        "BAD_RECORD",
        "sizes",
    ),
    "another queue of the same topic": (
        lambda b: replace(b, queue_indexes=b.queue_indexes[::-1].copy()),
        "BAD_RECORD",
        "queue_id",
    ),
    "a topic that no text can be": (
        lambda b: replace(b, topics=("Topic\udc80est",)),
        "BAD_RECORD",
        "topic",
    ),
}


@pytest.mark.parametrize("count", [FEW, MANY - 1])
@pytest.mark.parametrize("case", COLUMNS)
def test_columns_that_contradict_the_bytes(case: str, count: int) -> None:
    change, code, field = COLUMNS[case]
    fault = refusal(change(batch_of(puts(count))))
    assert (fault.code, fault.field) == (code, field)


def verdict(batch: RecordBatch) -> tuple[str, str, int] | None:
    try:
        check_batch(batch, LIMITS)
    except BatchRefusedError as fault:
        return fault.code, fault.field, fault.record_index
    return None


MIXED = batch_of([*puts(MANY - len(GOOD)), *GOOD])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, MIXED.byte_size - 1), st.integers(0, 255)), max_size=3))
def test_both_paths_say_the_same(changes: list[tuple[int, int]]) -> None:
    data = bytearray(MIXED.records)
    for at, value in changes:
        data[at] = value
    batch = replace(MIXED, records=bytes(data))
    by_columns = verdict(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append_check, "FEW_RECORDS", MANY + 1)
        assert verdict(batch) == by_columns


@given(
    st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=30),
    st.data(),
)
def test_the_first_difference_of_slices(texts: list[bytes], data: st.DataObject) -> None:
    others = [data.draw(st.sampled_from([text, bytes(len(text)), text[::-1]])) for text in texts]
    lengths = np.array([len(text) for text in texts], np.int64)
    starts = np.cumsum(lengths) - lengths
    left, right = (np.frombuffer(b"".join(each), np.uint8) for each in (texts, others))
    expected = next(
        (i for i, pair in enumerate(zip(texts, others, strict=True)) if pair[0] != pair[1]), -1
    )
    assert first_difference(left, starts, right, starts, lengths) == expected
    nothing = np.array([], np.int64)
    assert first_difference(left, nothing, right, nothing, nothing) == -1


@pytest.mark.parametrize(
    "topics", [["a"], ["abc", "de"], ["ab\0c", "d"], ["ü", "x", ""], ["\0"], ["", ""], ["x\udc80y"]]
)
def test_the_topics_of_a_batch_are_laid_out_one_by_one(topics: list[str]) -> None:
    flat, starts, lengths = topic_table(topics)
    found = [bytes(flat[at : at + size]) for at, size in zip(starts, lengths, strict=True)]
    assert found == [topic.encode(errors="replace") for topic in topics]

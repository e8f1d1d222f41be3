"""Records framed from columns equal those that the plain encoder makes of the same messages."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.record_strategies import TOPICS
from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.columns.encode import encode_columns
from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.errors import FormatError, RecordTooLargeError
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.properties import encode_properties
from tandemlog.format.record.record import encode_record

BORN = "10.1.2.3:4567"
BORN_IPV6 = "[fe80:0:0:0:0:0:0:1]:4567"
TABLE = [(0, 0), (0, 3), (1, 0), (2, 7)]
"""Topic and queue id of each entry."""

property_values = st.one_of(
    st.none(),
    st.just(""),
    st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=12),
    st.just("x" * 32),
)
message = st.fixed_dictionaries(
    {
        "body": st.one_of(st.binary(max_size=40), st.just(b"b" * 128), st.just(bytes(5000))),
        "queue": st.integers(0, len(TABLE) - 1),
        "UNIQ_KEY": property_values,
        "KEYS": property_values,
        "TAGS": property_values,
        "own": st.dictionaries(st.sampled_from(["a", "DELAY"]), st.just("v"), max_size=2),
        "flag": st.integers(-(2**31), 2**31 - 1),
        "born": st.integers(0, 2**60),
    }
)


def encode(
    messages: list[dict[str, Any]],
    topics: tuple[str, ...],
    *,
    first: bytes = b"",
    common: bytes = b"",
    columns: tuple[str, ...] = ("UNIQ_KEY", "KEYS", "TAGS"),
    **others: Any,
) -> RecordBatch:
    def column(name: str) -> ByteColumn | None:
        return ByteColumn.of(each[name] for each in messages) if name in columns else None

    arguments: dict[str, Any] = {
        "bodies": ByteColumn.of(each["body"] for each in messages),
        "topics": topics,
        "queue_topics": np.array([topic for topic, _ in TABLE], np.uint32),
        "queue_ids": np.array([queue_id for _, queue_id in TABLE], np.uint32),
        "queue_indexes": np.array([each["queue"] for each in messages], np.uint16),
        "uniq_keys": column("UNIQ_KEY"),
        "keys": column("KEYS"),
        "tags": column("TAGS"),
        "own_properties": ByteColumn.of(encode_properties(each["own"]) for each in messages),
        "first_properties": first,
        "common_properties": common,
        "flag": np.array([each["flag"] for each in messages], np.int64),
        "born_timestamp": np.array([each["born"] for each in messages], np.int64),
        "sys_flag": 0x301,
        "born_host": BORN,
    }
    return encode_columns(**(arguments | others))


def plainly(
    messages: list[dict[str, Any]],
    topics: tuple[str, ...],
    first: bytes,
    common: bytes,
    columns: tuple[str, ...] = ("UNIQ_KEY", "KEYS", "TAGS"),
    **others: Any,
) -> list[bytes]:
    records = []
    for row, each in enumerate(messages):
        named = {name: each[name] for name in columns if each[name]}
        properties = (b"" if row else first) + encode_properties(named)
        arguments = {
            "topic": topics[TABLE[each["queue"]][0]],
            "queue_id": TABLE[each["queue"]][1],
            "body": each["body"],
            "properties": properties + encode_properties(each["own"]) + common,
            "flag": each["flag"],
            "sys_flag": 0x301,
            "born_timestamp": each["born"],
            "born_host": BORN,
            "store_host": "0.0.0.0:0",
        }
        records.append(encode_record(**(arguments | others)))
    return records


topic_tuples = st.permutations(TOPICS).map(lambda each: tuple(each[:3]))


@settings(max_examples=150)
@given(
    st.lists(message, max_size=8),
    topic_tuples,
    st.sampled_from([b"", b"__TL_SEQ\x01p,0,1,0,9\x02"]),
    st.sampled_from([b"", b"WAIT\x01true\x02"]),
    st.sampled_from([1, 20]),
)
def test_equal_to_the_plain_encoder(
    messages: list[dict[str, Any]],
    topics: tuple[str, ...],
    first: bytes,
    common: bytes,
    times: int,
) -> None:
    messages = messages * times
    batch = encode(messages, topics, first=first, common=common)
    expected = plainly(messages, topics, first, common)
    assert bytes(batch.records) == b"".join(expected)
    assert batch.sizes.tolist() == [len(each) for each in expected]
    assert batch.queue_indexes.tolist() == [each["queue"] for each in messages]
    assert list(zip(batch.queue_topics.tolist(), batch.queue_ids.tolist(), strict=True)) == TABLE


MESSAGE: dict[str, Any] = {
    "body": b"body",
    "queue": 1,
    "UNIQ_KEY": "u",
    "KEYS": "k1 k2",
    "TAGS": "t",
    "own": {},
    "flag": 0,
    "born": 5,
}
THREE = ("T", "U", "V")


@pytest.mark.parametrize("count", [0, 1, 100])
def test_ipv6_hosts_and_columns_left_out(count: int) -> None:
    messages = [MESSAGE] * count
    batch = encode(messages, THREE, columns=("TAGS",), born_host=BORN_IPV6, store_ipv6=True)
    expected = plainly(
        messages,
        THREE,
        b"",
        b"",
        ("TAGS",),
        born_host=BORN_IPV6,
        store_host="[0:0:0:0:0:0:0:0]:0",
    )
    assert bytes(batch.records) == b"".join(expected)


def test_framed_records_are_whole_records() -> None:
    batch = encode([MESSAGE] * 100, THREE)
    found, _ = walk_strict(batch.records, base_offset=None)
    assert found.sizes.tolist() == batch.sizes.tolist()


def test_rows_of_a_longer_column() -> None:
    bodies = ByteColumn.of([b"a\x02", b"bb", b"ccc", b"\x02"])
    tags = ByteColumn.of(["\x02", "x", "y", "\x02"])
    batch = encode([MESSAGE] * 2, THREE, columns=(), bodies=bodies.rows(1, 3), tags=tags.rows(1, 3))
    messages = [{**MESSAGE, "body": b"bb", "TAGS": "x"}, {**MESSAGE, "body": b"ccc", "TAGS": "y"}]
    assert bytes(batch.records) == b"".join(plainly(messages, THREE, b"", b"", ("TAGS",)))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"tags": ByteColumn.of(["a", "b\x02c"])}, FormatError, "'TAGS' of message 1"),
        ({"keys": ByteColumn.of(["a"])}, FormatError, "KEYS has 1 rows, bodies has 2"),
        ({"queue_indexes": np.array([0, 4], np.uint16)}, FormatError, "holds 4"),
        ({"flag": 2**31}, FormatError, "flag"),
        ({"sys_flag": np.array([0, -(2**31) - 1])}, FormatError, "sys_flag"),
        ({"queue_ids": np.array([0, 1, 2, 2**31], np.uint32)}, FormatError, "queue id"),
        ({"common_properties": b"a\x01b"}, FormatError, "common_properties"),
        ({"first_properties": b"a\x01b"}, FormatError, "first_properties"),
        ({"own_properties": ByteColumn.of([b"", b"a\x01b"])}, FormatError, "of message 1"),
        ({"keys": ByteColumn.of(["", "k" * 32767])}, RecordTooLargeError, "limit is 32767"),
    ],
)
def test_what_cannot_be_framed(
    changes: dict[str, Any], error: type[FormatError], words: str
) -> None:
    with pytest.raises(error, match=words):
        encode([MESSAGE] * 2, THREE, **changes)

"""Many records decoded at once give what record.py gives for each."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.columns.fields import (
    Properties,
    PropertyTexts,
    RecordFields,
    bytes_under,
)
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.record.properties import decode_properties
from tandemlog.format.record.record import encode_record
from tandemlog.format.record.sys_flag import ZLIB, with_compression

TEXTS = st.lists(
    st.sampled_from([b"K\x01v\x02", b"K\x01w\x02", b"L\x01\xc3\xa9\x02", b"", b"K", b"\x01v\x02",
                     b"K\x01\x02", b"K\x01v\x01w\x02", b"v\x02", b"\x02", b"\x01",
                     b"K\x01\xff\x02"]),
    max_size=4,
).map(b"".join)  # fmt: skip


def decoded(texts: list[bytes], rows: slice | None = None) -> Properties:
    """As they stand in a log: something in front of each, and behind the last."""
    data = b"".join(b"\x02" + text for text in texts) + b"\x02"
    lengths = np.array([len(text) for text in texts], np.int64)
    starts = np.cumsum(lengths + 1) - lengths
    everything = slice(7, 7 + len(texts))
    return PropertyTexts(data, starts, lengths, everything).of(rows or everything)


@given(st.lists(TEXTS, min_size=1, max_size=5), st.integers(1, 6))
def test_properties_are_those_of_each_text(texts: list[bytes], times: int) -> None:
    texts = [text for text in texts for _ in range(times)]
    found = decoded(texts)
    expected = [decode_properties(text) for text in texts]
    assert found.rows() == expected
    assert found.column("K") == [each.get("K") for each in expected]
    assert found.column("none") == [None] * len(texts)


@given(st.lists(TEXTS, min_size=1, max_size=9), st.data())
def test_some_of_the_rows_are_what_they_are_among_all(
    texts: list[bytes], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(texts) - 1))
    end = data.draw(st.integers(begin + 1, len(texts)))
    found = decoded(texts, slice(7 + begin, 7 + end))
    assert found.rows() == [decode_properties(text) for text in texts[begin:end]]


ALIKE = st.tuples(
    st.lists(st.text("KEYS", min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.text("a \u00e9\x00", max_size=3), min_size=9, max_size=9),
    st.sampled_from([b"", b"\x02"]),
)


@given(ALIKE, st.integers(1, 3))
def test_texts_of_the_same_names_are_those_of_each(
    alike: tuple[list[str], list[str], bytes], rows: int
) -> None:
    """Of whatever lengths the values are, and whether or not the last separator is there."""
    names, values, end = alike
    texts = [
        b"\x02".join(
            f"{name}\x01{values[3 * row + number]}".encode() for number, name in enumerate(names)
        )
        + end
        for row in range(rows)
    ]
    expected = [decode_properties(text) for text in texts]
    found = decoded(texts)
    assert found.rows() == expected
    assert [found.column(name) for name in names] == [
        [each.get(name) for each in expected] for name in names
    ]


def test_alike_texts_are_split_as_one() -> None:
    found = decoded([b"A\x01%d\x02B\x01b\x02" % number for number in range(3)])
    assert found.columns == {"A": ["0", "1", "2"], "B": ["b"] * 3}
    first, second, _ = found.rows()
    first["B"] = "changed"
    assert second == {"A": "1", "B": "b"}, "each record has a dict of its own"


def test_a_last_separator_may_be_missing() -> None:
    found = decoded([b"A\x010\x02B\x01b", b"A\x011\x02B\x01b\x02"])
    assert found.columns == {"A": ["0", "1"], "B": ["b"] * 2}
    assert decoded([b"", b""]).columns == {}


def test_names_that_shift_from_record_to_record_are_not_mistaken() -> None:
    texts = [b"A\x011\x02B\x012\x02A\x013\x02", b"B\x014\x02"]
    found = decoded(texts)
    assert found.rows() == [{"A": "3", "B": "2"}, {"B": "4"}]


def test_a_text_that_ends_in_the_middle_is_not_continued_in_the_next_one() -> None:
    """End to end they look as three records with one property each."""
    found = decoded([b"A\x01v\x02", b"A", b"v\x02\x01A\x01w\x02"])
    assert found.rows() == [{"A": "v"}, {}, {}]


def test_bodies_are_sliced_and_checked() -> None:
    records = [
        encode_record(topic="t", body=b"x" * number, properties={"N": str(number + 1)})
        for number in range(6)
    ]
    records[2] = encode_record(topic="t", body=b"zz", sys_flag=with_compression(0, ZLIB))
    damaged = bytearray(records[4])
    damaged[88] ^= 1
    records[4] = bytes(damaged)
    records[5] = records[5][:3] + b"\x7f" + records[5][4:]
    sizes = np.array([len(record) for record in records])
    view = memoryview(b"in front" + b"".join(records))[8:]
    headers = gather_headers(view, np.cumsum(sizes) - sizes, sizes)
    assert bytes_under(view) == (view.obj, 8)
    fields = RecordFields(view, headers)
    found, faulty = fields.bodies(slice(0, 6))
    assert (found[:4], faulty) == ([b"", b"x", b"zz", b"xxx"], [4, 5])
    assert fields.bodies(slice(3, 4)) == ([b"xxx"], [])
    assert fields.bodies(slice(3, 5))[1] == [1]
    assert fields.torn is not None
    assert fields.torn.tolist() == [False] * 5 + [True]
    assert fields.packed is not None
    assert fields.packed.tolist()[:5] == [False, False, True, False, False]
    assert fields.properties(slice(0, 2)).columns == {"N": ["1", "2"]}


@given(st.lists(st.sampled_from(["t", "u", "topic", "\u00e9", "x" * 128]), min_size=1, max_size=6))
def test_topics_and_numbers_are_those_of_each_record(topics: list[str]) -> None:
    records = [
        encode_record(topic=topic, body=b"x", queue_offset=number)
        for number, topic in enumerate(topics)
    ]
    sizes = np.array([len(record) for record in records])
    data = b"".join(records)
    fields = RecordFields(data, gather_headers(data, np.cumsum(sizes) - sizes, sizes))
    for rows in (slice(0, len(topics)), slice(len(topics) - 1, len(topics))):
        assert fields.topics(rows) == topics[rows]
        assert fields.numbers("queue_offset", rows) == list(range(len(topics)))[rows]


def test_what_is_no_view_of_bytes_is_copied() -> None:
    assert bytes_under(b"abc") == (b"abc", 0)
    assert bytes_under(memoryview(bytearray(b"abc"))[1:]) == (b"bc", 0)
    assert bytes_under(memoryview(b"abc")[3:]) == (b"", 0)

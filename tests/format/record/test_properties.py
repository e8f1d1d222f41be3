"""Properties: what is written is read, and what other writers leave is read as RocketMQ does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError, RecordTooLargeError
from tandemlog.format.record.properties import (
    append_property,
    decode_properties,
    encode_properties,
    split_keys,
)

names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
values = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(names, values, max_size=8))
def test_round_trip(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(st.dictionaries(names, values, max_size=4))
def test_last_separator_may_be_missing(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)[:-1]) == properties


@given(st.binary(max_size=64))
def test_reads_any_bytes(data: bytes) -> None:
    decoded = decode_properties(data)
    assert all(name and value for name, value in decoded.items())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"\x02\x02", {}),
        (b"k\x01v", {"k": "v"}),
        (b"k\x01\x02", {}),
        (b"\x01v\x02", {}),
        (b"kv\x02", {}),
        (b"k\x02a\x01b\x02", {"a": "b"}),
        (b"k\x01v\x02k\x01w\x02", {"k": "w"}),
        (b"k\x01v\x02k\x01\x02", {"k": "v"}),
        (b"k\x01v\x01w\x02", {"k": "v\x01w"}),
        (b"k\x01\xff\x02", {"k": "�"}),
    ],
)
def test_rules_of_the_reader(data: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(data) == expected


def test_empty_values_are_not_written() -> None:
    assert encode_properties({"a": "", "b": "x"}) == b"b\x01x\x02"


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"": "v"}, "empty name"),
        ({"": ""}, "empty name"),
        ({"a\x01": "v"}, "a\\\\x01"),
        ({"a\x02": "v"}, "a\\\\x02"),
        ({"name": "v\x02"}, "'name'"),
        ({"name": "\ud800"}, "Unicode"),
    ],
)
def test_refuses_what_nobody_could_read(properties: dict[str, str], named: str) -> None:
    with pytest.raises(FormatError, match=named):
        encode_properties(properties)


def test_limit_is_in_bytes() -> None:
    assert len(encode_properties({"k": "x" * 32764})) == 32767
    with pytest.raises(RecordTooLargeError, match="32769 bytes, the limit is 32767") as caught:
        encode_properties({"k": "é" * 16383})
    assert caught.value.field == "properties"


def test_append_puts_a_missing_separator_in_between() -> None:
    assert append_property(b"", "k", "v") == b"k\x01v\x02"
    assert append_property(b"a\x01b", "k", "v") == b"a\x01b\x02k\x01v\x02"
    assert append_property(b"a\x01b\x02", "k", "v") == b"a\x01b\x02k\x01v\x02"


def test_append_refuses_an_empty_value_and_too_many_bytes() -> None:
    with pytest.raises(FormatError, match="'k' has an empty value"):
        append_property(b"", "k", "")
    with pytest.raises(RecordTooLargeError):
        append_property(b"a\x01" + b"b" * 32764 + b"\x02", "k", "v")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("k1  k2 ", ["k1", "k2"]), ("", []), (" ", []), ("a\tb", ["a\tb"])],
)
def test_keys_are_split_at_single_spaces(text: str, expected: list[str]) -> None:
    assert split_keys(text) == expected

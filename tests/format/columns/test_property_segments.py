"""All names and values by columns are those that the plain decoder finds."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.columns.property_segments import PropertySegments
from tandemlog.format.record.properties import decode_properties

NAMES = [b"\1", b"\2", b"a", b"TAGS", b"KEYS", b"UNIQ_KEY", b"XUNIQ_KEY", b"v v"]
NAMES += [b"__SHARDINGKEY", b"XXSHARDINGKEY"]
TEXTS = st.lists(
    st.lists(
        st.sampled_from(
            [
                b"\1",
                b"\2",
                b"a",
                b"TAGS",
                b"KEYS",
                b"UNIQ_KEY",
                b"XUNIQ_KEY",
                b"v v",
                b"__SHARDINGKEY",
                b"XXSHARDINGKEY",
            ]
        ),
        max_size=14,
    ).map(b"".join),
    max_size=6,
)


def segments_of(texts: list[bytes]) -> PropertySegments:
    lengths = np.array([len(each) for each in texts], np.int64)
    starts = np.cumsum(np.concatenate(([3], lengths[:-1]))) if texts else lengths
    return PropertySegments(b"###" + b"".join(texts), starts, lengths)


@given(TEXTS)
def test_segments_are_those_of_the_plain_decoder(texts: list[bytes]) -> None:
    found = segments_of(texts)
    flat = found.flat.tobytes()
    for row, text in enumerate(texts):
        first, last = int(found.row_offsets[row]), int(found.row_offsets[row + 1])
        pairs = {}
        for i in range(first, last):
            begin, cut, end = int(found.begins[i]), int(found.separators[i]), int(found.ends[i])
            pairs[flat[begin:cut].decode()] = flat[cut + 1 : end].decode()
        assert pairs == decode_properties(text)


@given(TEXTS, st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"__SHARDINGKEY"]))
def test_a_named_value_is_the_last_of_its_name(texts: list[bytes], name: bytes) -> None:
    found = segments_of(texts)
    starts, lengths = found.values(name)
    values = [
        found.flat[start : start + length].tobytes().decode() or None
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    assert values == [decode_properties(each).get(name.decode()) for each in texts]


@given(TEXTS)
def test_repeats_are_found_exactly(texts: list[bytes]) -> None:
    found = segments_of(texts)
    flat = found.flat.tobytes()
    offsets = found.row_offsets.tolist()
    names = [
        [flat[int(found.begins[i]) : int(found.separators[i])] for i in range(first, last)]
        for first, last in pairwise(offsets)
    ]
    assert found.has_repeats() == any(len(set(each)) < len(each) for each in names)


@given(TEXTS, st.sampled_from([b"TAGS", b"UNIQ_KEY", b"__SHARDINGKEY"]))
def test_a_name_is_taken_out_of_every_string(texts: list[bytes], name: bytes) -> None:
    found = segments_of(texts)
    rest = found.without(found.named(name))
    flat = rest.flat.tobytes()
    for row, text in enumerate(texts):
        first, last = int(rest.row_offsets[row]), int(rest.row_offsets[row + 1])
        names = {
            flat[begin:cut].decode()
            for begin, cut in zip(
                rest.begins[first:last].tolist(), rest.separators[first:last].tolist(), strict=True
            )
        }
        assert names == decode_properties(text).keys() - {name.decode()}

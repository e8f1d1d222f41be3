"""Hashes of many strings equal the plain ones."""

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.arrays.java_hash_columns import hash_strings, hash_texts, java_hashes
from tandemlog.format.java_hash import java_hash, java_hash_continued

texts = st.lists(
    st.one_of(
        st.text(st.characters(codec="ascii"), max_size=60),
        st.text(st.characters(codec="utf-8"), max_size=12),
        st.sampled_from(["", "polygenelubricants", "中文", "😀", "TagA", "x" * 300]),
    ),
    max_size=30,
)


@given(texts, st.lists(st.text(max_size=5), min_size=1, max_size=4), st.integers(1, 40))
def test_equal_to_the_plain_hash(strings: list[str], starts: list[str], times: int) -> None:
    strings = strings * times
    column = ByteColumn.of(strings)
    arguments = column.data, column.starts, column.lengths
    assert java_hashes(*arguments).tolist() == [java_hash(text) for text in strings]

    seeds = [java_hash(starts[row % len(starts)]) for row in range(len(strings))]
    continued = java_hashes(*arguments, np.array(seeds, np.int32))
    assert continued.tolist() == [
        java_hash_continued(seed, text) for seed, text in zip(seeds, strings, strict=True)
    ]

    hashed = hash_strings(*arguments)
    for end in ("#", "#T#", "😀"):
        assert hashed.followed_by(end).tolist() == [java_hash(text + end) for text in strings]
    few = hash_texts(strings)
    assert few.hashes.tolist() == hashed.hashes.tolist()
    assert few.powers.tolist() == hashed.powers.tolist()
    odd = np.arange(1, len(strings), 2)
    assert hashed.take(odd).java_hashes().tolist() == [java_hash(each) for each in strings[1::2]]


@given(st.lists(st.binary(max_size=30), max_size=10))
def test_bytes_that_are_no_text(strings: list[bytes]) -> None:
    column = ByteColumn.of(strings)
    assert java_hashes(column.data, column.starts, column.lengths).tolist() == [
        java_hash(each.decode("utf-8", "replace")) for each in strings
    ]


def test_long_strings_and_many() -> None:
    strings = ["a" * 5_000, "b", "ab" * 700, "", "é" * 2_000] + [f"key-{n}" for n in range(9_000)]
    column = ByteColumn.of(strings)
    assert java_hashes(column.data, column.starts, column.lengths).tolist() == [
        java_hash(each) for each in strings
    ]


def test_long_strings_are_not_kept() -> None:
    """Anyone who may send chooses them."""
    strings = [f"{number:06d}" + 3_000 * "x" + "é" for number in range(60)]
    column = ByteColumn.of(strings)
    hash_strings(column.data, column.starts, column.lengths)  # the table of powers grows once
    strings = [text[::-1] for text in strings]
    column = ByteColumn.of(strings)
    tracemalloc.start()
    try:
        hash_strings(column.data, column.starts, column.lengths)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000

import random
import tracemalloc
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.plain_filter import VALUES, a_filter, a_like, selects, some_properties
from tandemlog.format.columns.property_layouts import find_properties
from tandemlog.format.filter.evaluation import matches
from tandemlog.format.filter.expression import FilterError
from tandemlog.format.filter.like_pattern import LikePattern
from tandemlog.format.filter.parser import parse
from tandemlog.format.filter.text_column import Numbers, TextColumn
from tandemlog.format.record.properties import encode_properties


def selected(text: str, messages: list[dict[str, str]]) -> list[bool]:
    stored = [encode_properties(each) for each in messages]
    data = np.frombuffer(b"".join(stored), np.uint8)
    lengths = np.array([len(each) for each in stored], np.int64)
    starts = np.cumsum(lengths) - lengths

    def column(name: str) -> TextColumn:
        ((value_starts, value_lengths),) = find_properties(data, starts, lengths, [name.encode()])
        return TextColumn(data, value_starts, value_lengths)

    result: list[bool] = matches(parse(text), column, len(messages)).tolist()
    return result


@settings(max_examples=400)
@given(st.integers(0, 1 << 40))
def test_it_selects_what_is_selected_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    text = a_filter(rng)
    messages = [some_properties(rng) for _ in range(30)]
    try:
        condition = parse(text)
    except FilterError:
        return
    assert selected(text, messages) == [selects(condition, each) for each in messages], text


@settings(max_examples=200)
@given(st.integers(0, 1 << 40))
def test_like_and_long_lists_among_other_conditions(seed: int) -> None:
    rng = random.Random(seed)
    texts = ", ".join(f"'{rng.choice(VALUES).replace(chr(39), chr(39) * 2)}'" for _ in range(30))
    text = f"NOT ({a_like(rng)}) OR {a_like(rng)} AND b IN ({texts}) OR a NOT IN ({texts})"
    messages = [some_properties(rng) for _ in range(30)]
    condition = parse(text)
    assert selected(text, messages) == [selects(condition, each) for each in messages], text


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a > 5", "6", True),
        ("a > 5", "5", False),
        ("a > 5", "5.5", False),  # Integer.valueOf("5.5") throws
        ("a > 5.0", "5.5", True),
        ("a > 5", "3000000000", False),  # more than an Integer
        ("a > 5.0", "3000000000", True),
        ("a > 2999999999", "3000000000", True),
        ("a = 5", "05", True),
        ("a = '5'", "05", False),
        ("a = 0.0", "-0.0", False),  # Double.compareTo
        ("a > 1e300", "NaN", True),
        ("a = 5.0", " 5d ", True),
        ("a = 5", " 5 ", False),
        ("a = 3", "\u0663", True),  # a digit of another script is one for Java
        ("a = 5", "\U000104a5", False),  # unless it takes two UTF-16 units
        ("a = 5", "0" * 5_000 + "5", True),
        ("a = -5", "-" + "\u0660" * 200 + "5", True),
        ("a < 5", "1" * 5_000, False),
        ("a = TRUE", "True", True),
        ("a", "true", False),
        ("NOT a = 5", "7", False),  # (NOT a) = 5
        ("NOT (a = 5)", "7", True),
        ("a LIKE 'e%_t'", "east", True),
        ("a LIKE 'e%_t'", "et", False),
        ("a LIKE '50!%' ESCAPE '!'", "50%", True),
        ("a NOT LIKE '50%'", "60", True),
    ],
)
def test_a_value_is_read_as_java_reads_it(text: str, value: str, expected: bool) -> None:
    assert selected(text, [{"a": value}]) == [expected]


def test_an_error_counts_unless_the_outcome_was_certain_before() -> None:
    messages = [{"amount": "many", "region": "eu"}]
    assert selected("amount > 5 OR region = 'eu'", messages) == [False]
    assert selected("region = 'eu' OR amount > 5", messages) == [True]
    assert selected("NOT (amount > 5)", messages) == [False]


def test_null_is_neither_equal_nor_different() -> None:
    assert selected("a = 5", [{}]) == [False]
    assert selected("a <> 5", [{}]) == [False]
    assert selected("a IS NULL", [{}]) == [True]
    assert selected("a NOT IN ('x')", [{}]) == [False]
    assert selected("a NOT CONTAINS 'x'", [{}]) == [False]
    assert selected("a NOT LIKE 'x'", [{}]) == [False]


def test_bytes_that_are_no_text_are_read_as_rocketmq_reads_them() -> None:
    data = np.frombuffer(b"\xff\xfex\xef\xbf\xbd", np.uint8)
    column = TextColumn(data, np.array([0, 3]), np.array([2, 3]))
    for text, expected in [("a = '\ufffd'", [False, True]), ("a CONTAINS '\ufffd'", [True, True])]:
        assert matches(parse(text), lambda _: column, 2).tolist() == expected


@settings(max_examples=1_000)
@given(st.text("ab", max_size=12), st.text("ab%_", max_size=8))
def test_like_is_what_backtracking_finds(text: str, pattern: str) -> None:
    def found(text: str, pattern: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "%":
            return any(found(text[start:], pattern[1:]) for start in range(len(text) + 1))
        return text[:1] != "" and pattern[0] in ("_", text[0]) and found(text[1:], pattern[1:])

    parts = tuple(
        tuple(None if each == "_" else each for each in part) for part in pattern.split("%")
    )
    assert LikePattern(parts).fits(text) == found(text, pattern)


def test_values_of_all_kinds_in_one_batch() -> None:
    messages = [{"a": value} for value in VALUES] * 40
    for text in ("a > 5", "a <= 5.5", "a < 3000000000", "a = TRUE", "a >= 0.1"):
        condition = parse(text)
        assert selected(text, messages) == [selects(condition, each) for each in messages]


def test_a_text_is_contained_in_one_message_and_not_in_two() -> None:
    messages = [{"a": "xab"}, {"a": "cd"}, {"b": "bc"}, {"a": "bcbcb"}, {"a": "bc"}, {}]
    assert selected("a CONTAINS 'bc'", messages) == [False, False, False, True, True, False]
    assert selected("a CONTAINS 'bc\x02'", messages) == [False] * 6
    assert selected("a CONTAINS 'b\x02'", messages) == [False] * 6
    assert selected("'abc' CONTAINS 'bc' AND a IS NULL", messages)[2:] == [True, False, False, True]


class CountedTexts(TextColumn):
    """Counts how often numbers are read from the texts."""

    read: ClassVar[int] = 0

    def whole_numbers(self, bits: int) -> Numbers:
        CountedTexts.read += 1
        return super().whole_numbers(bits)


def test_a_between_in_a_between_is_evaluated_once() -> None:
    text = "a"
    for _ in range(20):
        text = f"-({text} BETWEEN 1 AND 2)"
    data = np.frombuffer(b"5", np.uint8)
    column = CountedTexts(data, np.array([0]), np.array([1]))
    CountedTexts.read = 0
    assert matches(parse(f"{text} IS NULL"), lambda _: column, 1).tolist() == [True]
    assert CountedTexts.read == 2  # >= and <=


def test_a_literal_takes_no_memory_for_each_message() -> None:
    long = "a" * 4_000
    messages = [{"a": "x"}] * 2_000
    for condition in ("STARTSWITH '", "CONTAINS '", "LIKE '%"):
        text = f"'{long}' {condition}{long}'"
        parse(text)
        tracemalloc.start()
        assert all(selected(text, messages))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2_000_000


@pytest.mark.parametrize("pattern", ["%" + "a" * 4_000 + "b%", "%" + "a_" * 2_000 + "b%"])
def test_a_pattern_that_nearly_fits_everywhere(pattern: str) -> None:
    """Compared character by character, each of these would take 100 million steps."""
    text = "a" * 30_000
    messages = [{"a": text}, {"a": text + "b"}, {"a": text + "ba"}, {"a": "b" + text}]
    assert selected(f"a LIKE '{pattern}'", messages) == [False, True, True, False]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("aba", [True, False, False, False, False]),
        ("ab%ba", [False, True, False, False, False]),
        ("%ba", [True, True, False, False, False]),
        ("\u00e9%", [False, False, True, False, True]),
        ("%\u00e9%", [False, False, True, True, True]),
        ("\u00e9%\u00e9", [False, False, False, False, True]),
        ("%", [True] * 5),
        ("%%", [True] * 5),
        ("", [False] * 5),
    ],
)
def test_a_usual_pattern(pattern: str, expected: list[bool]) -> None:
    values = ["aba", "abba", "\u00e9", "a\u00e9", "\u00e9\u00e9"]
    messages = [*({"a": value} for value in values), dict[str, str]()]
    assert selected(f"a LIKE '{pattern}'", messages) == [*expected, False]
    assert selected(f"a NOT LIKE '{pattern}'", messages) == [
        *(not each for each in expected),
        False,
    ]


def test_a_pattern_with_a_character_that_stands_for_other_bytes() -> None:
    data = np.frombuffer(b"a\xffa", np.uint8)
    column = TextColumn(data, np.array([0]), np.array([3]))
    for pattern, expected in [("a\ufffd%a", True), ("a\ufffd%\ufffda", False), ("%\ufffd%", True)]:
        assert matches(parse(f"a LIKE '{pattern}'"), lambda _: column, 1).tolist() == [expected]

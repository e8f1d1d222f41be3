"""Patterns: `*` and `?` as in file names, nothing else is special."""

import fnmatch
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.constants import MAX_TOPIC
from tandemlog_server.node.access.patterns import REMEMBERED, Patterns


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*", "anything", True),
        ("orders-*", "orders-", True),
        ("orders-*", "orders", False),
        ("*-eu", "orders-eu", True),
        ("*-eu", "orders-eu-2", False),
        ("v?", "v1", True),
        ("v?", "v10", False),
        ("a.b", "axb", False),
        ("a[bc]", "ab", False),
        ("a[bc]", "a[bc]", True),
        ("a|b", "a", False),
        ("%RETRY%g", "%RETRY%g", True),
        ("a*", "a\nb", True),
        ("a", "a\n", False),
    ],
)
def test_what_fits(pattern: str, name: str, fits: bool) -> None:
    patterns = Patterns(["never", pattern])
    for _ in range(2):  # looked up, then remembered
        assert patterns.cover(name) is fits
        assert patterns.cover_bytes(name.encode()) is fits


def test_no_pattern_covers_nothing() -> None:
    assert not Patterns([])
    assert not Patterns([]).cover("")
    assert not Patterns([]).cover("a")


def test_bytes_that_are_no_text_are_covered_by_the_star_alone() -> None:
    assert not Patterns(["a*"]).cover_bytes(b"a\xff")
    assert Patterns(["*"]).cover_bytes(b"a\xff")


def test_what_is_remembered_is_bounded() -> None:
    patterns = Patterns(["1*"])
    for number in range(3 * REMEMBERED):
        assert patterns.cover(str(number)) is str(number).startswith("1")
    assert len(patterns._covered) <= REMEMBERED


@given(pattern=st.text("ab*?", max_size=12), name=st.text("abc", max_size=16))
def test_the_same_fit_as_in_file_names(pattern: str, name: str) -> None:
    assert Patterns([pattern]).cover(name) is fnmatch.fnmatchcase(name, pattern)


def test_no_name_takes_long() -> None:
    patterns = Patterns(["*a" * 40 + "*b", "*-*-eu"])
    began = time.thread_time()
    assert not patterns.cover("a" * MAX_TOPIC)
    assert not patterns.cover("-" * MAX_TOPIC)
    assert not patterns.cover("-" * 1_000_000)
    assert time.thread_time() - began < 1


def test_a_name_that_no_topic_has_is_not_remembered() -> None:
    patterns = Patterns(["a*"])
    assert patterns.cover("a" * MAX_TOPIC)
    assert not patterns.cover("a" * (MAX_TOPIC + 1))
    assert not patterns.cover_bytes(b"a" * (MAX_TOPIC + 1))
    assert list(patterns._covered) == ["a" * MAX_TOPIC]
    assert Patterns(["*"]).cover("a" * (MAX_TOPIC + 1))

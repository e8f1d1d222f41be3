"""Patterns: `*` and `?` as in file names, nothing else is special."""

import pytest

from node.access.patterns import REMEMBERED, Patterns


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
    assert len(patterns._known) <= REMEMBERED

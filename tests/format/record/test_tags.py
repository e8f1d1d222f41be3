"""Tag expressions."""

import re

import pytest

from tandemlog.format.errors import FormatError
from tandemlog.format.record.tags import parse_tags, tag_hashes


@pytest.mark.parametrize("expression", [None, "", "  ", "*", " * "])
def test_all(expression: str | None) -> None:
    assert parse_tags(expression) is None


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA || TagB", {"TagA", "TagB"}),
        ("TagA||TagB||", {"TagA", "TagB"}),
        (" 标签 || a.b", {"标签", "a.b"}),
        ("a-b_c:d/e#1%", {"a-b_c:d/e#1%"}),
    ],
)
def test_some(expression: str, tags: set[str]) -> None:
    assert parse_tags(expression) == frozenset(tags)


@pytest.mark.parametrize("expression", ["||", " || || "])
def test_refuses_bars_alone(expression: str) -> None:
    with pytest.raises(FormatError, match="contains no tag"):
        parse_tags(expression)


@pytest.mark.parametrize("expression", ["a && b", "a&&b || c", "'a'", 'a || "b"', "`a` || b", "''"])
def test_refuses_what_looks_like_another_language(expression: str) -> None:
    with pytest.raises(FormatError, match=re.escape(repr(expression))):
        parse_tags(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "amount > 5", "a=1", "a<b", "created,paid", "created, paid", "a b", "TAGS IN ('a')", "a(b",
        "b)", "a|b", "a | b", "a ||| b", "a\tb", "ok || no, way",
    ],
)  # fmt: skip
def test_refuses_what_would_be_one_tag_that_no_message_has(expression: str) -> None:
    with pytest.raises(FormatError, match=r"TagA \|\| TagB"):
        parse_tags(expression)


@pytest.mark.parametrize("tag", ["it's", '5"', "'", "R&D"])
def test_signs_within_a_tag_are_part_of_it(tag: str) -> None:
    assert parse_tags(tag) == frozenset({tag})


def test_hashes() -> None:
    assert tag_hashes(None) is None
    assert tag_hashes(frozenset({"TagA", "TagB"})) == frozenset({2598919, 2598920})

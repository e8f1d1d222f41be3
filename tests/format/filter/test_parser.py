import pytest

from tandemlog.format.filter.expression import FilterError, Or
from tandemlog.format.filter.parser import MAX_CHARACTERS, MAX_DEPTH, parse


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "filter at character 1: it ends too early; expected"),
        ("a >", "at character 4: it ends too early"),
        ("a > 5 b = 2", "at character 7: unexpected 'b'; expected"),
        ("a ? 3", "at character 3: unexpected '?'"),
        ("a = 'x", 'at character 5: unexpected "\'"'),
        ("007 = a", "at character 1"),
        ("a > 'x'", "'x' has no order: > compares only numbers"),
        ("a > (b = 1)", "a condition cannot be compared by >"),
        ("a = NULL", "write IS NULL or IS NOT NULL"),
        ("TRUE = 5", "TRUE cannot be compared with 5"),
        ("5", "5 is neither true nor false"),
        ("a = 1 AND 'x'", "'x' is neither true nor false"),
        ("a IN (1, 2)", "unexpected '1'; expected a text in quotes"),
        ("5 IN ('x')", "IN needs the name of a property before it"),
        ("a BETWEEN 7 AND 5", "no number is between 7 and 5"),
        ("a = 9223372036854775808", "is more than 9223372036854775807"),
        ("a = " + "9" * 5_000, "(5000 characters) is more than 9223372036854775807"),
        ("a = 1e999", "too large for a double"),
        ("a LIKE 'x' ESCAPE 'ab'", "one character is needed"),
        ("a LIKE 'x!' ESCAPE '!'", "ends with its escape character"),
        ("a = '" + "x" * MAX_CHARACTERS + "'", f"the limit is {MAX_CHARACTERS}"),
        ("NOT " * MAX_DEPTH + "a", f"more than {MAX_DEPTH} levels"),
        ("- " * 4000 + "a = 1", f"more than {MAX_DEPTH} levels"),
        ("-" * 8_000 + "a = 1", f"at character 1: more than {MAX_DEPTH} levels"),
        ("a = '" + "-" * 100, 'unexpected "\'"'),
    ],
)
def test_what_is_wrong_is_named(text: str, reason: str) -> None:
    with pytest.raises(FilterError) as raised:
        parse(text)
    assert reason in str(raised.value)


def test_brackets_are_no_levels() -> None:
    assert parse("(" * 1000 + "a = 1" + ")" * 1000) == parse("a = 1")


def test_a_long_chain_is_one_level() -> None:
    assert parse(" OR ".join(["a = 1"] * 900)) == Or((parse("a = 1"),) * 900)


@pytest.mark.parametrize(
    "text",
    [
        "a=5 and not b<>7",
        "a = 5 aNd nOt b <> 7",
        "(a = 5) /* first */ AND -- then\n ((NOT b) <> 7)",
    ],
)
def test_words_in_any_case_and_comments(text: str) -> None:
    assert parse(text) == parse("a = 5 AND (NOT b) <> 7")


def test_a_name_may_begin_like_a_word() -> None:
    assert parse("NOTE = 1 AND INNER$ = 2 AND nullable IS NULL AND likes LIKE '%'")


def test_minuses_in_texts_and_comments_are_no_levels() -> None:
    many = "-" * 1_000
    assert parse(f"a = '{many}' /* {many} */ OR {many} then\n b = 1") == parse(
        f"a = '{many}' OR b = 1"
    )


def test_a_between_in_a_between_is_checked_in_no_time() -> None:
    text = "a"
    for _ in range(60):
        text = f"-({text} BETWEEN 1 AND 2)"
    with pytest.raises(FilterError, match=f"more than {MAX_DEPTH} levels"):
        parse(f"{text} IS NULL")

"""What a message quotes has a bound."""

from tandemlog.format.words import MAX_QUOTED, counted, queues_text, quoted, shortened, visible


def test_a_short_name_is_quoted_as_it_is() -> None:
    assert quoted("orders") == "'orders'"
    assert quoted("x" * MAX_QUOTED) == f"'{'x' * MAX_QUOTED}'"


def test_of_a_long_name_the_length_is_told() -> None:
    text = quoted("x" * 1_000_000)
    assert len(text) < MAX_QUOTED + 40
    assert text.endswith("… (1000000 characters)")


def test_a_long_text_is_shortened() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "abc… (4 characters)"


def test_one_of_a_kind() -> None:
    assert (counted(1, "queue"), counted(2, "queue")) == ("1 queue", "2 queues")


def test_what_a_terminal_would_obey_is_made_visible() -> None:
    assert visible("a\x1b[2J\x9b\u202e\x00b\tc\nd é") == "a\\u001b[2J\\u009b\\u202e\\u0000b\tc\nd é"


def test_queues_in_short() -> None:
    queues = [("b", 1), ("a", 3), ("a", 0), ("a", 1), ("a", 2), ("a", 7)]
    assert queues_text(queues) == "a 0-3,7 b 1"
    assert queues_text([]) == ""

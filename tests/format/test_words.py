"""Numbers in messages."""

import pytest

from tandemlog.format.words import counted


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries"), (1000, "1000 entries")]
)
def test_one_thing_is_no_plural(count: int, text: str) -> None:
    assert counted(count, "entry", "entries") == text


def test_an_s_makes_most_plurals() -> None:
    assert (counted(1, "queue"), counted(2, "queue")) == ("1 queue", "2 queues")

"""The keys of `tandemlog top`: what each changes, and what it leaves."""

from dataclasses import replace

import pytest

from tandemlog_server.cli.top.view import MAX_FILTER, SORTS, Page, Room, View, decoded, pressed

ROOM = Room(rows=100, shown=20)
TOPICS = View(page=Page.TOPICS)


def after(view: View, text: str, room: Room = ROOM) -> View:
    """The view after the bytes that a terminal sends."""
    for key in decoded(text):
        view = pressed(view, key, room)
    return view


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("\x1b[A\x1bOB", ["up", "down"]),
        ("\x1b[5~\x1b[6~", ["page up", "page down"]),
        ("\x1b[1;5Cq", ["q"]),  # Ctrl-Right has no meaning here, and its letters are no keys
        ("\x1b", ["escape"]),
        ("\tj\r\x7f", ["tab", "j", "enter", "backspace"]),
        ("ü\x00", ["ü"]),
    ],
)
def test_bytes_are_keys(text: str, keys: list[str]) -> None:
    assert list(decoded(text)) == keys


def test_pages() -> None:
    assert after(View(first=5), "t") == TOPICS
    assert after(TOPICS, "c") == View()
    assert after(View(), "\t").page is Page.TOPICS
    assert after(View(), "\t\t").page is Page.CLUSTER
    assert after(replace(TOPICS, first=5), "t").first == 5, "it is there already"


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("j", 31), ("k", 29), ("\x1b[B\x1b[B", 32), ("\x1b[A", 29), (" ", 50), ("b", 10),
        ("\x1b[6~", 50), ("\x1b[5~", 10), ("g", 0), ("G", 80), ("\x1b[H", 0), ("\x1b[F", 80),
        ("   ", 80), ("bb", 0), ("   k", 79), ("x", 30),
    ],
)  # fmt: skip
def test_rows_are_scrolled_and_never_further_than_there_are_any(text: str, first: int) -> None:
    assert after(View(first=30), text).first == first


def test_what_has_become_shorter_is_scrolled_from_its_end() -> None:
    assert after(View(first=90), "k", Room(rows=25, shown=20)).first == 4
    assert after(View(first=3), "j", Room(rows=5, shown=20)).first == 0


def test_sorting_takes_one_column_after_the_other() -> None:
    view, seen = replace(TOPICS, first=7), []
    for _ in SORTS:
        seen.append(view.sort)
        view = after(view, "s")
    assert seen == list(SORTS)
    assert (view.sort, view.first) == (SORTS[0], 0)
    assert after(View(), "s") == View(), "nodes are not sorted"


def test_a_filter_is_typed() -> None:
    typing = after(replace(TOPICS, first=7), "/qs")
    assert (typing.words, typing.typing, typing.ended, typing.first) == ("qs", True, False, 0)
    kept = after(typing, "\x7f\r")
    assert (kept.words, kept.typing) == ("q", False)
    assert after(kept, "\x1b") == TOPICS
    assert after(typing, "\x1b") == TOPICS
    assert after(typing, "\x15").words == ""
    assert len(after(typing, "x" * 500).words) == MAX_FILTER
    assert after(View(), "/") == View()


def test_it_ends() -> None:
    assert after(View(), "q").ended
    assert not after(View(), "xyz").ended

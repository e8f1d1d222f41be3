"""A list in pages: every row once, whatever is added or deleted meanwhile."""

import pytest

from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.pulls.pages import (
    MAX_BYTES,
    MAX_ROWS,
    NAME_PAGES,
    OFFSET_PAGES,
    number_of_page,
    rows_after,
    sorted_names,
)


def all_pages(names: list[str], size: int = 1) -> list[list[str]]:
    pages, page = [], ""
    while True:
        rows, page = rows_after(page, names, str, lambda _: size, NAME_PAGES)
        pages.append(rows)
        if not page:
            return pages


def test_every_row_is_in_one_page() -> None:
    names = [f"{number:06}" for number in range(2 * MAX_ROWS + 5)]
    pages = all_pages(names)
    assert [len(page) for page in pages] == [MAX_ROWS, MAX_ROWS, 5]
    assert [name for page in pages for name in page] == names


def test_a_page_ends_at_its_bytes_and_has_one_row_at_least() -> None:
    assert [len(page) for page in all_pages(["a", "b", "c", "d"], MAX_BYTES // 2)] == [2, 2]
    assert [len(page) for page in all_pages(["a", "b"], 2 * MAX_BYTES)] == [1, 1]


def test_a_row_that_is_deleted_shifts_no_other_one() -> None:
    names = [f"{number:06}" for number in range(MAX_ROWS + 2)]
    _, page = rows_after("", names, str, len, NAME_PAGES)
    rows, _ = rows_after(page, names[5 : MAX_ROWS - 1] + names[MAX_ROWS:], str, len, NAME_PAGES)
    assert rows == names[MAX_ROWS:]


def test_a_list_without_rows_has_one_page() -> None:
    assert all_pages([]) == [[]]


def test_queues_name_pages_too() -> None:
    keys = [("t", number) for number in range(MAX_ROWS + 1)]
    _, page = rows_after("", keys, str, len, OFFSET_PAGES)
    assert rows_after(page, keys, str, len, OFFSET_PAGES) == ([str(keys[-1])], "")


@pytest.mark.parametrize("page", ["x", "[1]", '["t"]', '["t", "x"]', "{}", "[" * 10_000])
def test_a_page_that_no_answer_named_is_refused(page: str) -> None:
    with pytest.raises(RequestRefusedError, match="page must be"):
        rows_after(page, [("t", 1)], str, len, OFFSET_PAGES)


@pytest.mark.parametrize("page", ["x", "-1", "1" * 30, "1.5", "٣"])
def test_a_number_of_a_page_is_a_number(page: str) -> None:
    with pytest.raises(RequestRefusedError, match="page must be"):
        number_of_page(page)


def test_many_names_are_sorted_in_parts() -> None:
    names = [f"{number * 7_919 % 30_011}" for number in range(30_000)]
    assert list(sorted_names(names)) == sorted(names)

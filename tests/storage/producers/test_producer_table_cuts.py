"""What the table of producers knows after the log was cut."""

import pytest

from fakes.producer_logs import Log, check, mark, taken
from tandemlog_server.storage.producers.producer_requests import (
    Duplicate,
    Extent,
    New,
    Resume,
)
from tandemlog_server.storage.producers.producer_table import ProducerTable


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (6, Duplicate((Extent(20, 4, 60),), 60, 101)),
        (5, Resume(3)),
        (3, Resume(1)),
        (2, New()),
    ],
)
def test_truncation_takes_back_what_is_gone(keep: int, expected: object) -> None:
    table, log = taken((mark(0, 2), 2, 100), (mark(1, 4), 4, 101))
    table.truncate(log.offset(keep), log.count)
    assert check(table, 1, 4) == expected
    assert table.next_offset == log.offset(keep)
    # the same bytes come again from another node, and the request is whole
    log.take(table, keep)
    assert check(table, 1, 4) == Duplicate((Extent(20, 4, 60),), 60, 101)


def test_a_request_whose_second_half_was_cut_goes_on_with_the_first_ones_time() -> None:
    table, log = taken((mark(0, 3), 2, 100), (mark(0, 3, index=2), 1, 200))
    table.truncate(20, log.count)
    assert check(table, 0, 3) == Resume(2)
    other = Log()
    other.put(mark(0, 3), 3, 100)
    other.take(table, 2)
    assert check(table, 0, 3) == Duplicate((Extent(0, 3, 30),), 30, 100)


def test_a_request_is_cut_though_its_beginning_is_too_old_to_be_read() -> None:
    table, log = taken((mark(0, 4), 4, 100), log=Log(records_a_file=2))

    def without_the_first_file(start: int, end: int) -> tuple[int, int]:
        return (0, 0) if start < 30 else log.count(start, end)

    table.truncate(30, without_the_first_file)
    assert check(table, 0, 4) == Resume(2)
    log.take(table, 2)
    assert isinstance(check(table, 0, 4), Duplicate)


def test_a_torn_request_goes_on_when_what_came_behind_it_is_cut() -> None:
    table, log = taken((mark(0, 3), 2, 100), (None, 5, 200))
    table.truncate(20, log.count)
    other = Log()
    other.put(mark(0, 3), 3, 100)
    other.take(table, 2)
    assert isinstance(check(table, 0, 3), Duplicate)


def test_truncation_brings_an_old_epoch_back() -> None:
    table, log = taken((mark(0, 1), 1, 100), (mark(0, 1, epoch=1), 1, 101))
    table.truncate(10, log.count)
    assert check(table, 1, 1) == New()
    table.truncate(0, log.count)
    assert len(table) == 0
    assert check(table, 0, 1) == New()


def test_what_was_forgotten_stays_so_after_a_truncation() -> None:
    table, log = ProducerTable(kept=1), Log()
    for sequence in range(3):
        log.put(mark(sequence, 1), 1, 100)
    log.take(table)
    table.truncate(20, log.count)
    assert check(table, 1, 1) == Duplicate()
    assert check(table, 2, 1) == New()

"""What is known of producers, from appends and from the bytes of the log alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.producer_logs import SIZE, Log, check, mark, refused, taken
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.producers.producer_requests import (
    Duplicate,
    Extent,
    New,
    ProducerState,
    Resume,
)
from tandemlog_server.storage.producers.producer_table import ProducerTable


def test_a_producer_begins_with_sequence_0() -> None:
    table = ProducerTable()
    assert check(table, 0, 3) == New()
    assert check(table, 0, 3, epoch=7) == New()
    assert refused(table, 1) == ("UNKNOWN_PRODUCER", 0, 1)
    assert table.describe("p") is None


def test_sequences_follow_each_other() -> None:
    table, _ = taken((mark(0, 2), 2, 100), (mark(1, 1), 1, 101))
    assert check(table, 2, 5) == New()
    assert refused(table, 3) == ("SEQUENCE_GAP", 2, 3)
    assert table.describe("p") == ProducerState(0, 1, 101)


def test_a_repeated_sequence_gets_the_first_answer() -> None:
    table, _ = taken((None, 2, 99), (mark(0, 2), 2, 100), (mark(1, 3), 3, 101))
    assert check(table, 0, 2) == Duplicate((Extent(20, 2, 40),), 40, 100)
    assert check(table, 1, 3) == Duplicate((Extent(40, 3, 70),), 70, 101)
    assert refused(table, 1, 2) == ("SEQUENCE_CONFLICT", 3, 2)


def test_a_new_epoch_fences_the_old_one_and_begins_with_0() -> None:
    table, log = taken((mark(0, 1), 1, 100), (mark(1, 1), 1, 101))
    assert check(table, 0, 4, epoch=2) == New()
    assert refused(table, 2, epoch=2) == ("SEQUENCE_GAP", 0, 2)
    log.put(mark(0, 1, epoch=2), 1, 102)
    log.take(table, 2)
    assert refused(table, 2) == ("PRODUCER_FENCED", 2, 0)
    assert check(table, 1, 1, epoch=2) == New()
    assert table.describe("p") == ProducerState(2, 0, 102)


@pytest.mark.parametrize("bad", [ProducerMark("p", 0, 0, 1, 2), ProducerMark("p", 0, 0, 0, 3)])
def test_a_mark_must_fit_its_request(bad: ProducerMark) -> None:
    with pytest.raises(BatchRefusedError) as caught:
        ProducerTable().check(bad, 2)
    assert caught.value.code == "BAD_RECORD"


def test_only_some_requests_are_remembered() -> None:
    table, log = ProducerTable(kept=2), Log()
    for sequence in range(5):
        log.put(mark(sequence, 1), 1, 100 + sequence)
    log.take(table)
    assert check(table, 4, 1) == Duplicate((Extent(40, 1, 50),), 50, 104)
    assert check(table, 1, 1) == Duplicate()
    assert check(table, 5, 1) == New()


def test_what_may_still_be_lost_is_not_forgotten() -> None:
    """Forgotten is answered as stored; and of what is cut nothing may be answered so."""
    durable = 10
    table, log = ProducerTable(kept=1, safe_offset=lambda: durable), Log()
    for sequence in range(4):
        log.put(mark(sequence, 1), 1, 100)
    log.take(table)
    assert check(table, 0, 1) == Duplicate()
    assert check(table, 1, 1) == Duplicate((Extent(10, 1, 20),), 20, 100)
    table.truncate(20, log.count)
    assert check(table, 1, 1) == Duplicate((Extent(10, 1, 20),), 20, 100)
    assert check(table, 2, 1) == New()


def test_a_request_runs_through_the_end_of_a_file() -> None:
    table, _ = taken((None, 2, 99), (mark(0, 4), 4, 100), log=Log(records_a_file=4))
    assert check(table, 0, 4) == Duplicate((Extent(20, 2, 40), Extent(50, 2, 70)), 70, 100)


@pytest.mark.parametrize(
    "after",
    [
        [],
        [(None, 3, 200)],  # a stranger's records, stored later
        [(mark(0, 3, who="q"), 3, 100)],  # another request, stored in the same millisecond
    ],
)
def test_a_torn_request_goes_on(after: list[tuple[str | None, int, int]]) -> None:
    table, log = taken((mark(0, 1), 1, 99), (mark(1, 5), 2, 100), *after)
    assert check(table, 1, 5) == Resume(2)
    assert refused(table, 2) == ("SEQUENCE_GAP", 1, 2)
    assert refused(table, 1, 4) == ("SEQUENCE_CONFLICT", 5, 4)
    first = len(log.rows)
    log.put(mark(1, 5, index=2), 3, 300)
    log.take(table, first)
    rest = Extent(log.offset(first), 3, log.end)
    extents = (Extent(10, 2, 30), rest) if after else (Extent(10, 5, 60),)
    assert check(table, 1, 5) == Duplicate(extents, log.end, 300)
    assert check(table, 2, 1) == New()


def test_a_request_may_be_torn_more_than_once() -> None:
    table, log = taken((mark(0, 5), 1, 100), (mark(0, 5, index=1), 2, 200), (None, 1, 201))
    assert check(table, 0, 5) == Resume(3)
    log.put(mark(0, 5, index=3), 2, 300)
    log.take(table, 4)
    assert isinstance(check(table, 0, 5), Duplicate)


@pytest.mark.parametrize("cut", range(9))
def test_batches_may_be_cut_anywhere(cut: int) -> None:
    log = Log(records_a_file=3)
    log.put(None, 1, 99)
    log.put(mark(0, 4), 4, 100)
    log.put(mark(1, 2), 2, 100)
    log.put(None, 1, 100)
    whole, parts = ProducerTable(), ProducerTable()
    log.take(whole)
    log.take(parts, 0, cut)
    log.take(parts, cut)
    log.take(parts, max(cut - 2, 0))  # once more what was dispatched before
    for sequence, count in ((0, 4), (1, 2)):
        assert check(parts, sequence, count) == check(whole, sequence, count)
        assert isinstance(check(whole, sequence, count), Duplicate)


def test_an_append_is_recorded_once_whoever_comes_first() -> None:
    log = Log()
    log.put(mark(0, 2), 2, 100)
    log.put(mark(1, 1), 1, 101)
    appended, dispatched = ProducerTable(), ProducerTable()
    first = ProducerMark("p", 0, 0, 0, 2)
    appended.record(first, [Extent(0, 2, 20)], 100)
    assert appended.next_offset == 20
    log.take(appended)
    log.take(dispatched)
    dispatched.record(first, [Extent(0, 2, 20)], 100)
    assert appended.snapshot().rows == dispatched.snapshot().rows
    assert dispatched.next_offset == 30


def test_marks_that_are_none_are_named_and_left_out() -> None:
    log, table = Log(), ProducerTable()
    log.put(mark(0, 3), 2, 100)
    log.put("garbage", 1, 100)
    (fault,) = log.take(table)
    assert "record at 20" in fault
    assert isinstance(check(table, 0, 3), Duplicate)


def test_reset_knows_nobody() -> None:
    table, _ = taken((mark(0, 1), 1, 100))
    table.reset(70)
    assert (len(table), table.next_offset) == (0, 70)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["p", "q", None]), st.integers(1, 5)), max_size=12),
    st.lists(st.integers(1, 9), max_size=12),
    st.integers(0, 40),
)
def test_the_bytes_alone_tell_what_the_master_recorded(
    requests: list[tuple[str | None, int]], cuts: list[int], keep: int
) -> None:
    """A master's table, one made from the log in pieces, and both after a truncation."""
    log, master, slave = Log(records_a_file=7), ProducerTable(kept=3), ProducerTable(kept=3)
    sequences: dict[str, int] = {}
    for number, (who, count) in enumerate(requests):
        first = len(log.rows)
        if who is None:
            log.put(None, count, 100 + number)
            continue
        made = ProducerMark(who, 0, sequences.get(who, 0), 0, count)
        sequences[who] = made.sequence + 1
        log.put(made.encode(), count, 100 + number)
        offsets = [log.offset(first + each) for each in range(count)]
        master.record(made, [Extent(each, 1, each + SIZE) for each in offsets], 100 + number)
    position = 0
    for step in cuts:
        log.take(slave, position, position + step)
        position += step
    log.take(slave, position)
    log.take(master)

    def known(table: ProducerTable) -> list[object]:
        answers: list[object] = []
        for who, following in sequences.items():
            counts = [count for each, count in requests if each == who]
            for sequence in range(following):
                try:
                    found = check(table, sequence, counts[sequence], who=who)
                except BatchRefusedError as fault:
                    answers.append(fault.code)
                    continue
                if isinstance(found, Duplicate):
                    answers.append((found.end_offset, found.store_timestamp,
                                    sum(extent.count for extent in found.extents)))  # fmt: skip
                else:
                    answers.append(found)
        return answers

    assert known(slave) == known(master)
    cut = log.offset(min(keep, len(log.rows)))
    for table in (master, slave):
        table.truncate(cut, log.count)
    assert known(slave) == known(master)

"""What is known of producers, from appends and from the bytes of the log alone."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.fast_crc import crc32
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.errors import BatchRefusedError, StoreBusyError
from tandemlog_server.storage.producers.producer_requests import (
    Duplicate,
    Extent,
    New,
    ProducerState,
    Resume,
)
from tandemlog_server.storage.producers.producer_table import GRACE_S, IDLE_KEPT, ProducerTable

SIZE = 10
Row = tuple[int, str | None]  # store time, mark of the record


class Log:
    """Records of SIZE bytes; `files` of that many records, a BLANK of SIZE at the end of each."""

    def __init__(self, records_a_file: int = 1 << 30) -> None:
        self.rows: list[Row] = []
        self._a_file = records_a_file

    def offset(self, row: int) -> int:
        return SIZE * (row + row // self._a_file)

    @property
    def end(self) -> int:
        return self.offset(len(self.rows) - 1) + SIZE if self.rows else 0

    def put(self, mark: str | None, count: int, time: int) -> None:
        """`count` records of one request, the first with the mark."""
        self.rows += [(time, mark if number == 0 else None) for number in range(count)]

    def count(self, start: int, end: int) -> tuple[int, int]:
        times = [time for row, (time, _) in enumerate(self.rows) if start <= self.offset(row) < end]
        return len(times), times[-1] if times else 0

    def take(self, table: ProducerTable, first: int = 0, last: int | None = None) -> list[str]:
        rows = self.rows[first:last]
        offsets = np.array([self.offset(first + n) for n in range(len(rows))], dtype=np.int64)
        marks = [(n, mark.encode()) for n, (_, mark) in enumerate(rows) if mark is not None]
        end = self.offset(first + len(rows) - 1) + SIZE if rows else table.next_offset
        times = np.array([time for time, _ in rows], dtype=np.int64)
        return table.replay(offsets, np.full(len(rows), SIZE, dtype=np.int32), times, marks, end)


def mark(sequence: int, count: int, *, epoch: int = 0, index: int = 0, who: str = "p") -> str:
    return ProducerMark(who, epoch, sequence, index, count).encode()


def check(
    table: ProducerTable, sequence: int, count: int, *, epoch: int = 0, who: str = "p"
) -> New | Resume | Duplicate:
    return table.check(ProducerMark(who, epoch, sequence, 0, count), count)


def refused(
    table: ProducerTable, sequence: int, count: int = 1, *, epoch: int = 0
) -> tuple[str, int, int]:
    with pytest.raises(BatchRefusedError) as caught:
        check(table, sequence, count, epoch=epoch)
    assert caught.value.field == "__TL_SEQ"
    assert "producer p" in str(caught.value)
    return caught.value.code, caught.value.limit, caught.value.actual


def taken(*rows: tuple[str | None, int, int], log: Log | None = None) -> tuple[ProducerTable, Log]:
    log = log if log is not None else Log()
    for each in rows:
        log.put(*each)
    table = ProducerTable()
    assert log.take(table) == []
    return table, log


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


class Bench:
    """A table whose own time is ours."""

    def __init__(self, kept: int = 64, limit: int = 3) -> None:
        self.now = 1_000.0
        self.log = Log()
        self.table = ProducerTable(kept=kept, limit=limit, monotonic=lambda: self.now)

    def put(self, who: str, sequence: int = 0, *, time: int = 100) -> None:
        first = len(self.log.rows)
        self.log.put(mark(sequence, 1, who=who), 1, time)
        assert self.log.take(self.table, first) == []

    def known(self) -> set[str]:
        return {who for who in "pqrstu" if self.table.describe(who) is not None}


def test_producers_are_forgotten_when_the_log_has_gone_on_by_the_retention() -> None:
    bench = Bench()
    bench.put("p", time=100)
    bench.put("q", time=200)
    bench.now += GRACE_S
    assert bench.table.forget(101) == 0
    assert bench.table.forget(50) == 1
    assert bench.known() == {"q"}


def test_a_clock_that_jumps_makes_nobody_unknown() -> None:
    """All of them would be in the middle of their retries."""
    bench = Bench()
    bench.put("p", time=100)
    bench.put("q", time=100 + 8 * 24 * 3_600_000)
    bench.now += GRACE_S - 1
    assert bench.table.forget(7 * 24 * 3_600_000) == 0
    bench.now += 1
    assert bench.table.forget(7 * 24 * 3_600_000) == 1
    assert bench.known() == {"q"}


@pytest.mark.parametrize("restored", [False, True])
def test_a_wrong_time_in_the_log_makes_nobody_unknown_when_it_is_over(*, restored: bool) -> None:
    """The clock was ten years ahead, and is right again: ages count from the newest record."""
    day = 24 * 3_600_000
    bench = Bench()
    bench.put("p", time=100 + 3_652 * day)
    bench.put("q", time=100)
    bench.put("r", time=100 + day)
    if restored:
        bench.table.restore(bench.table.snapshot().encode())
    bench.now += GRACE_S
    assert bench.table.forget(7 * day) == 0
    bench.put("r", 1, time=100 + 8 * day)
    bench.now += GRACE_S
    assert bench.table.forget(7 * day) == 1
    assert bench.known() == {"p", "r"}


def test_of_a_silent_producer_the_last_requests_stay() -> None:
    bench = Bench()
    for sequence in range(IDLE_KEPT + 5):
        bench.put("p", sequence)
    assert bench.table.forget(1_000) == 0
    assert check(bench.table, 0, 1) != Duplicate()
    bench.now += GRACE_S
    assert bench.table.forget(1_000) == 0
    assert check(bench.table, 4, 1) == Duplicate()
    assert check(bench.table, 5, 1) == Duplicate((Extent(50, 1, 60),), 60, 100)
    assert check(bench.table, IDLE_KEPT + 5, 1) == New()


def test_there_is_room_for_a_new_producer_when_another_one_is_silent() -> None:
    bench = Bench(limit=3)
    for who in "pqr":
        bench.put(who)
        bench.now += 1
    bench.put("p", 1)
    with pytest.raises(StoreBusyError, match="producer s is new, and 3 producers"):
        check(bench.table, 0, 1, who="s")
    assert check(bench.table, 1, 1, who="r") == New()
    bench.now += GRACE_S - 2
    assert check(bench.table, 0, 1, who="s") == New()
    bench.put("s")
    assert bench.known() == {"p", "r", "s"}


def shared(limit: int = 3) -> Bench:
    """A table full of producers of one holder that have just sent."""
    bench = Bench(limit=limit)
    for number in range(limit):
        sent_by(bench, f"many-{number}", "greedy")
    return bench


def sent_by(bench: Bench, who: str, holder: str, sequence: int = 0) -> None:
    known = ProducerMark(who, 0, sequence, 0, 1)
    assert bench.table.check(known, 1, holder) == New()
    first = len(bench.log.rows)
    bench.log.put(known.encode(), 1, 100)
    extent = Extent(bench.log.offset(first), 1, bench.log.end)
    bench.table.record(known, [extent], 100, holder)


def test_a_new_producer_of_another_holder_gets_in() -> None:
    bench = shared()
    with pytest.raises(StoreBusyError, match="3 of them of this identity or host"):
        bench.table.check(ProducerMark("more", 0, 0, 0, 1), 1, "greedy")
    sent_by(bench, "p", "modest")
    assert bench.table.describe("many-0") is None, "the one that is silent for longest"
    assert bench.table.describe("many-1") is not None
    for _ in range(3):
        with pytest.raises(StoreBusyError):
            bench.table.check(ProducerMark("more", 0, 0, 0, 1), 1, "greedy")
    sent_by(bench, "p", "modest", 1)
    sent_by(bench, "q", "third")
    assert bench.known() == {"p", "q"}
    with pytest.raises(StoreBusyError):  # nobody has more than one now
        bench.table.check(ProducerMark("s", 0, 0, 0, 1), 1, "fourth")


@pytest.mark.parametrize("anew", [False, True])
def test_a_restart_forgets_no_holder(anew: bool) -> None:
    """And a table of an earlier version, which names none, lets everyone in as well."""
    bench = shared()
    sent_by(bench, "p", "modest")
    data = bench.table.snapshot().encode()
    if anew:
        line, _, rest = data[:-10].partition(b"\n")
        head = json.loads(line)
        del head["holders"]
        text = json.dumps(head).encode() + b"\n" + rest
        data = text + b"\n%08x\n" % crc32(text)
    bench.table = ProducerTable(limit=3, monotonic=lambda: bench.now)
    bench.table.restore(data)
    assert len(bench.table) == 3
    bench.log = Log()
    bench.table.check(ProducerMark("q", 0, 0, 0, 1), 1, "third")
    assert len(bench.table) == 2
    assert bench.table.describe("p") is not None


def test_dispatch_forgets_who_is_silent_for_longest() -> None:
    """It cannot refuse what a master has stored."""
    bench = Bench(limit=3)
    for who in "pqprs":
        bench.put(who, int(who == "p" and bench.table.describe("p") is not None))
    assert bench.known() == {"p", "r", "s"}


@pytest.mark.parametrize("epoch", [0, 2])
def test_whom_a_master_had_forgotten_begins_anew_everywhere(epoch: int) -> None:
    """Else its next requests would be answered as stored by a node that still knows it."""
    table, log = taken(*[(mark(n, 1, epoch=2), 1, 100 + n) for n in range(9)])
    log.put(mark(0, 2, epoch=epoch), 2, 900)
    log.take(table, 9)
    assert table.describe("p") == ProducerState(epoch, 0, 900)
    assert check(table, 1, 1, epoch=epoch) == New()
    assert check(table, 0, 2, epoch=epoch) == Duplicate((Extent(90, 2, 110),), 110, 900)


def test_a_snapshot_without_its_open_request_can_be_restored() -> None:
    """The producer of the request that goes on may be forgotten."""
    bench = Bench()
    bench.log.put(mark(0, 3), 2, 100)
    bench.log.take(bench.table)
    bench.now += GRACE_S
    bench.table._newest_time = 10_000
    assert bench.table.forget(50) == 1
    restored = ProducerTable()
    restored.restore(bench.table.snapshot().encode())
    assert len(restored) == 0


def test_reset_knows_nobody() -> None:
    table, _ = taken((mark(0, 1), 1, 100))
    table.reset(70)
    assert (len(table), table.next_offset) == (0, 70)


@pytest.mark.parametrize("rows", [3, 5, 7])
def test_a_snapshot_goes_on_where_it_was_taken(rows: int) -> None:
    log, table, restored = Log(), ProducerTable(kept=2), ProducerTable(kept=2)
    for sequence in range(3):
        log.put(mark(sequence, 3), 3, 100)
    log.take(table, 0, rows)
    restored.restore(table.snapshot().encode())
    assert restored.next_offset == table.next_offset == 10 * rows
    log.take(table, rows)
    log.take(restored, rows)
    assert restored.snapshot().encode() == table.snapshot().encode()
    assert check(restored, 2, 3) == check(table, 2, 3)


def damaged(data: bytes) -> Sequence[bytes]:
    def summed(text: bytes) -> bytes:
        return text + b"\n%08x\n" % crc32(text)

    text = data[:-10]
    line, rows = text.split(b"\n", 1)
    return (
        b"",
        data[:-2],
        data.replace(b"\x01p", b"\x01r"),
        summed(b"{}\n"),
        summed(b"[]\n"),
        summed(text.replace(b'"version":2', b'"version":1')),
        summed(text[:-1]),
        summed(text + b"\0"),
        summed(line.replace(b'"producers":1', b'"producers":2') + b"\n" + rows),
        summed(line.replace(b'"open":null', b'"open":"nobody"') + b"\n" + rows),
        summed(line.replace(b'"open":null', b'"open":"p"') + b"\n" + rows),
    )


def test_a_damaged_snapshot_is_refused() -> None:
    table, _ = taken((mark(0, 1), 1, 100))
    before = table.snapshot().encode()
    for data in damaged(before):
        with pytest.raises(FormatError, match="producer table"):
            table.restore(data)
    assert table.snapshot().encode() == before


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

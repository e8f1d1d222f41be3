"""Which producers are forgotten, and who gets room in a full table."""

import json

import pytest

from fakes.producer_logs import Bench, Log, check, mark, taken
from tandemlog.format.fast_crc import crc32
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.errors import StoreBusyError
from tandemlog_server.storage.producers.producer_requests import (
    Duplicate,
    Extent,
    New,
    ProducerState,
)
from tandemlog_server.storage.producers.producer_table import GRACE_S, IDLE_KEPT, ProducerTable


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

"""Store times and what goes by them, while a clock jumps: nothing is lost, and all is found."""

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import Bench
from tandemlog_server.storage.clock import ACCEPT_JUMP_S, MAX_AHEAD_MS
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.tools.verify import verify

YEARS_S = 10 * 365 * 86_400


def times(bench: Bench) -> list[int]:
    bench.settle()
    found = bench.store.reader.ranges()
    end = next(each.max_offset for each in found if each.queue_id == 0)
    return [
        bench.store.reader.store_timestamp(
            int(bench.store.queues.read(0, at, 1)["physical_offset"][0])
        )
        for at in range(end)
    ]


def search(bench: Bench, time: int, boundary: Boundary = Boundary.LOWER) -> int:
    return bench.store.reader.search_offset("T", 0, time, boundary)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def put_keyed(bench: Bench) -> None:
    bench.store.put(batch_of([Put("T", 0, b"body", b"KEYS\x01k\x02")]))


def settle_clock(bench: Bench) -> None:
    bench.store.clock.now_ms()
    bench.clock.advance(ACCEPT_JUMP_S + 1)
    bench.store.clock.now_ms()


def wrong_time_in_the_log(bench: Bench) -> tuple[int, int]:
    """Ten messages, a jump of ten years that stays too long, ten more, the right time again, and
    ten more. The times of the first and of the last ten."""
    bench.put(10)
    first = bench.clock.now_ms()
    bench.clock.jump(YEARS_S)
    settle_clock(bench)
    bench.put(10)
    bench.clock.jump(-YEARS_S)
    settle_clock(bench)
    bench.put(10)
    last = bench.clock.now_ms()
    bench.put(1)
    return first, last


def test_messages_get_sane_times_while_the_clock_is_wrong(bench: Bench) -> None:
    bench.put()
    bench.clock.jump(YEARS_S)
    bench.clock.advance(7)
    bench.put()
    bench.clock.jump(-YEARS_S)
    bench.put()
    first, second, third = times(bench)
    assert (second - first, third - first) == (7001, 7002)


def test_times_go_on_from_the_clock_once_it_is_right(bench: Bench) -> None:
    first, last = wrong_time_in_the_log(bench)
    found = times(bench)
    assert found[:10] == [first] * 10
    assert found[10:20] == [found[10]] * 10
    assert found[10] > first + YEARS_S * 999
    assert found[20:] == [last] * 10 + [last + 1]


def test_a_search_by_time_copes_with_a_step_back(bench: Bench) -> None:
    first, last = wrong_time_in_the_log(bench)
    bench.settle()
    for _ in range(2):
        assert search(bench, first) == 0
        assert search(bench, first + 1) == 10, "nothing that is newer is skipped"
        assert search(bench, last - 1) == 10
        assert search(bench, last + 1) == 30
        assert search(bench, last + 2) == 31
        assert search(bench, first, Boundary.UPPER) == 9
        assert search(bench, last, Boundary.UPPER) == 29
        bench.reopen()


def test_a_query_by_key_and_time_copes_with_a_step_back(bench: Bench) -> None:
    put_keyed(bench)
    bench.clock.jump(YEARS_S)
    settle_clock(bench)
    put_keyed(bench)
    bench.clock.jump(-YEARS_S)
    settle_clock(bench)
    put_keyed(bench)
    now = bench.clock.now_ms()
    bench.settle()
    found = bench.store.reader.query_key("T", "k", begin_timestamp=now - 1000, end_timestamp=now)
    assert len(found.records) == 1


def test_steps_are_forgotten_with_their_log(bench: Bench) -> None:
    bench.put(10)
    cut = bench.store.log.wrote.value
    wrong_time_in_the_log(bench)
    bench.settle()
    steps = bench.store._parts.time_steps
    assert len(steps.offsets) == 1
    bench.store.truncate(cut)
    assert list(steps.offsets) == []


def test_a_restart_after_a_wrong_clock_goes_on_from_the_right_one(bench: Bench) -> None:
    """The node lets it start if the operator raises clock_tolerance_ms."""
    bench.put()
    bench.clock.jump(YEARS_S)
    settle_clock(bench)
    bench.put()
    bench.clock.jump(-YEARS_S)
    bench.reopen()
    bench.put()
    found = times(bench)
    assert found[1] > found[0] + YEARS_S * 999
    assert found[2] == bench.clock.now_ms()
    assert search(bench, bench.clock.now_ms() + 1) == 3
    assert search(bench, found[0] + 1) == 1, "nothing that is newer is skipped"


def test_a_log_that_is_a_little_ahead_is_not_stepped_back(bench: Bench) -> None:
    bench.put()
    bench.clock.jump(-(MAX_AHEAD_MS - 1000) / 1000)
    bench.reopen()
    bench.put()
    first, second = times(bench)
    assert second == first + 1


def test_producers_are_not_forgotten_by_a_jump(bench: Bench) -> None:
    parts = bench.store._parts
    assert parts.seen_time.steady_ms == 0
    bench.clock.advance(86_400)
    assert parts.seen_time.steady_ms == 86_400_000
    bench.clock.jump(YEARS_S)
    settle_clock(bench)
    assert parts.seen_time.steady_ms <= 1000


def test_a_store_with_wrong_times_holds(bench: Bench) -> None:
    """The checkpoint on the disk may have the wrong time when the right one has come back."""
    bench.put()
    bench.clock.jump(YEARS_S)
    settle_clock(bench)
    bench.put()
    bench.settle()
    bench.store.persist()
    bench.clock.jump(-YEARS_S)
    settle_clock(bench)
    bench.put(3)
    bench.store.flush()
    bench._abandon()
    bench.files.crash()
    assert verify(bench.config, bench.files).faults == []


def test_the_checkpoint_gets_right_times_with_the_clock(bench: Bench) -> None:
    """Times of the wrong hour leave the log with its first files; the checkpoint must not keep
    them."""
    right = bench.clock.now_ms()
    bench.put()
    bench.clock.jump(YEARS_S)
    settle_clock(bench)
    bench.put()
    bench.settle()
    bench.store.persist()
    bench.clock.jump(-YEARS_S)
    settle_clock(bench)
    bench.put(3)
    bench.settle()
    bench.store.persist()
    held = bench.store._parts.checkpoint.value
    newest = max(held.physic_msg_timestamp, held.logics_msg_timestamp)
    assert newest < right + YEARS_S * 500

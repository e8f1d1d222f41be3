"""Messages that come later, where something else goes wrong besides."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, Bench
from fakes.waiting import come, put_waiting, ready_desk, waiting_put
from tandemlog.format.constants import MAX_PROPERTIES
from tandemlog.format.delay.framing import ROLL_ROOM
from tandemlog.format.delay.handle import handle_of
from tandemlog_server.storage.errors import BatchRefusedError, StoreReadOnlyError
from tandemlog_server.storage.services.delay_desk import NotWaitingError

MIDDLE = CONFIG.commit_log_file_size * 64


def bench_of(**settings: object) -> Bench:
    config = replace(CONFIG, commit_log_file_size=MIDDLE, queue_file_size=20 * 1000)
    return Bench(replace(config, **settings))  # type: ignore[arg-type]


# ---- what a broker has delivered, in one batch of dispatch


def test_a_message_that_a_broker_lets_wait_again_comes_again() -> None:
    """A consumer that fails twice: the second wait begins behind the first delivery."""
    bench = bench_of()
    retry = waiting_put(bench, "a", level=1)
    put_waiting(bench, retry)
    bench.store.put_own(lambda: batch_of([replace(retry, topic="T", queue_id=0)]))
    put_waiting(bench, retry)
    desk = ready_desk(bench)
    assert len(bench.store.delays.rows) == 1
    bench.clock.advance(10)
    assert come(bench, desk) == [b"a", b"a"]


# ---- files of the log that are gone


def without_first_file(bench: Bench) -> None:
    bench.put(60, size=200)
    put_waiting(bench, waiting_put(bench, "here", delay_ms=10))
    bench.settle()
    bench.store.close()
    bench.files.unlink(bench.store.directory / "commitlog" / f"{0:020d}")
    bench.open()


def test_records_that_are_gone_do_not_stop_the_others() -> None:
    bench = bench_of(commit_log_file_size=8192)
    put_waiting(bench, waiting_put(bench, "gone", delay_ms=10))
    without_first_file(bench)
    desk = ready_desk(bench)
    assert bench.store.log.min_offset == 8192
    bench.clock.advance(1)
    before = len(bench.bodies())
    assert come(bench, desk)[before:] == [b"here"]


def test_records_that_are_gone_are_given_up_when_retention_waits() -> None:
    bench = bench_of(commit_log_file_size=8192)
    put_waiting(bench, waiting_put(bench, "gone", delay_ms=10**7))
    without_first_file(bench)
    desk = ready_desk(bench)
    assert desk.roll(8192) == 1
    bench.settle()
    assert len(bench.store.delays.rows) == 1


# ---- records that only just fit


def filled(put: Put, room: int) -> Put:
    """With so many bytes left in its properties, which are no text."""
    length = MAX_PROPERTIES - room - len(put.properties) - len(b"more\x01\x02")
    return replace(put, properties=put.properties + b"more\x01" + b"\xff" * length + b"\x02")


def test_a_record_leaves_room_to_wait_on() -> None:
    bench = bench_of()
    put = waiting_put(bench, "a", delay_ms=1)
    with pytest.raises(BatchRefusedError, match="for a message that comes later"):
        put_waiting(bench, filled(put, ROLL_ROOM - 1))
    put_waiting(bench, filled(put, ROLL_ROOM))
    desk = ready_desk(bench)
    assert desk.roll(bench.store.log.wrote.value) == 1
    bench.settle()
    bench.clock.advance(1)
    assert come(bench, desk) == [b"a"]


def test_a_record_of_a_broker_without_room_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = bench_of()
    full = filled(waiting_put(bench, "a", level=14), 0)
    bench.store.put_own(lambda: batch_of([full]))
    put_waiting(bench, waiting_put(bench, "b", delay_ms=10**6))
    desk = ready_desk(bench)
    assert desk.roll(bench.store.log.wrote.value) == 2
    assert "no room to wait on" in caplog.text
    bench.settle()
    assert bench.store.delays.needs_from() == 0
    bench.clock.advance(1001)
    assert sorted(come(bench, desk)) == [b"a", b"b"]


# ---- clocks


def refuse(*_: object, **__: object) -> None:
    raise StoreReadOnlyError("the disk is full")


def test_a_step_of_the_clock_is_noted_once_the_store_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=1_800_000))
    desk = ready_desk(bench)
    assert come(bench, desk) == []
    bench.clock.jump(-7_200)
    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "put_own", refuse)
        for _ in range(15):
            bench.clock.advance(60)
            with suppress(StoreReadOnlyError):
                desk.deliver()
    bench.clock.advance(899)
    assert come(bench, desk) == []
    bench.clock.advance(2)
    assert come(bench, desk) == [b"a"]


def test_a_put_before_the_first_look_of_a_term_hides_no_wrong_clock() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "old", delay_ms=600_000))
    bench.settle()
    bench.store.close()
    bench.clock.jump(-7200)
    bench.open()
    desk = ready_desk(bench)
    put_waiting(bench, waiting_put(bench, "new", delay_ms=60_000))
    bench.settle()
    assert come(bench, desk) == []
    bench.clock.advance(59)
    assert come(bench, desk) == [], "it is no part of what was stored by the wrong clock"
    bench.clock.advance(2)
    assert come(bench, desk) == [b"new"]
    bench.clock.advance(540)
    assert come(bench, desk) == [b"new", b"old"]


# ---- handles


def test_a_message_that_waits_on_in_a_new_record_is_called_back_by_its_handle() -> None:
    bench = bench_of()
    due_ms = bench.clock.now_ms() + 10**6
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10**6))
    handle = handle_of("T", due_ms, "a", 0)
    desk = ready_desk(bench)
    for _ in range(2):
        assert desk.roll(bench.store.log.wrote.value) == 1
        bench.settle()
    recalled = desk.recall(handle)
    assert recalled.log_offset > 0
    assert desk.recall(handle) == recalled
    bench.settle()
    assert not len(bench.store.delays.rows)
    bench.reopen()
    desk = ready_desk(bench)
    assert desk.recall(handle).log_offset == 0, "it may be asked again"
    bench.clock.advance(1001)
    assert come(bench, desk) == []


def test_another_message_with_its_key_is_not_called_back() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10))
    handle = handle_of("T", bench.clock.now_ms() + 10, "a", 0)
    desk = ready_desk(bench)
    bench.clock.advance(1)
    assert come(bench, desk) == [b"a"]
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10))
    bench.settle()
    with pytest.raises(NotWaitingError):
        desk.recall(handle)


# ---- queues that are gone


def test_a_message_for_a_queue_that_its_topic_lost_comes_to_one_that_is_there() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10, queue_id=3))
    desk = ready_desk(bench)
    fewer = replace(bench.store.topics.table["T"], read_queues=2, write_queues=2)
    bench.store.create_topic(fewer, update=True)
    bench.clock.advance(1)
    assert come(bench, desk, queue_id=1) == [b"a"]


def test_a_recall_of_a_term_that_is_over_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10**6))
    handle = handle_of("T", bench.clock.now_ms() + 10**6, "a", 0)
    desk = ready_desk(bench)
    put_own = bench.store.put_own

    def at_the_end_of_the_term(*args: Any, **more: Any) -> Any:
        result = put_own(*args, **more)
        desk.end()
        desk.begin()
        return result

    monkeypatch.setattr(bench.store, "put_own", at_the_end_of_the_term)
    desk.recall(handle)
    assert not desk._recalls, "it may be cut"

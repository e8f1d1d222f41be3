"""A master with messages that wait: they come when they are due, once, or are called back."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from fakes.batches import batch_of
from fakes.stores import CONFIG, Bench, records_of
from fakes.waiting import come, put_waiting, ready_desk, waiting_put
from tandemlog.format.constants import SCHEDULE_TOPIC, TIMER_TOPIC
from tandemlog.format.delay.handle import RecallHandle, handle_of
from tandemlog.format.record.record import Record
from tandemlog_server.storage.config import ConfirmSource, RetentionConfig
from tandemlog_server.storage.folds.fold import ANYWHERE
from tandemlog_server.storage.services.delay_desk import (
    DelayDesk,
    NotReadyError,
    NotWaitingError,
)

MIDDLE = CONFIG.commit_log_file_size * 64


def bench_of(**settings: object) -> Bench:
    config = replace(CONFIG, commit_log_file_size=MIDDLE, queue_file_size=20 * 1000)
    return Bench(replace(config, **settings))  # type: ignore[arg-type]


def stored(bench: Bench, topic: str = "T", queue_id: int = 0) -> list[Record]:
    return records_of(bench.store.reader.get(topic, queue_id, 0, 0, 1 << 20))


def test_a_message_comes_at_its_time_and_once() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=90_250))
    desk = ready_desk(bench)
    assert come(bench, desk) == []
    bench.clock.advance(90.249)
    assert come(bench, desk) == []
    bench.clock.advance(0.001)
    assert come(bench, desk) == [b"a"]
    bench.clock.advance(1000)
    assert come(bench, desk) == [b"a"]
    assert desk.next_due_ms() is None


def test_messages_come_by_time_and_then_in_the_order_of_their_puts() -> None:
    bench = bench_of()
    delays = [5_000, 1_000, 3_000, 1_000]
    for number, delay_ms in enumerate(delays):
        put_waiting(bench, waiting_put(bench, f"{number}", delay_ms=delay_ms))
    desk = ready_desk(bench)
    bench.clock.advance(10)
    assert come(bench, desk) == [b"1", b"3", b"2", b"0"]


def test_a_level_waits_as_long_as_the_store_says() -> None:
    bench = bench_of(delay_levels="2s 7s")
    put_waiting(bench, waiting_put(bench, "a", level=2))
    put_waiting(bench, waiting_put(bench, "b", level=1))
    desk = ready_desk(bench)
    bench.clock.advance(2)
    assert come(bench, desk) == [b"b"]
    bench.clock.advance(5)
    assert come(bench, desk) == [b"b", b"a"]


def test_the_message_keeps_its_parts_and_names_its_record() -> None:
    bench = bench_of()
    result = put_waiting(bench, waiting_put(bench, "a", delay_ms=10, queue_id=3))
    desk = ready_desk(bench)
    bench.clock.advance(1)
    come(bench, desk)
    (record,) = stored(bench, queue_id=3)
    assert record.queue_offset == 0
    assert record.uniq_key == "a"
    # the first record of this log is named by -1
    assert result.segments[0].physical_offset == 0
    assert record.prepared_transaction_offset == -1


@pytest.mark.parametrize("how", ["reopen", "kill", "crash"])
def test_after_a_restart_what_waits_comes_and_what_came_does_not(how: str) -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "early", delay_ms=10))
    put_waiting(bench, waiting_put(bench, "late", delay_ms=60_000))
    desk = ready_desk(bench)
    bench.clock.advance(1)
    assert come(bench, desk) == [b"early"]
    getattr(bench, how)()
    desk = ready_desk(bench)
    assert come(bench, desk) == [b"early"]
    bench.clock.advance(60)
    assert come(bench, desk) == [b"early", b"late"]


def test_what_was_not_flushed_when_the_power_went_waits_again() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10))
    desk = ready_desk(bench)
    bench.clock.advance(1)
    assert desk.deliver() == 1
    bench.crash()
    desk = ready_desk(bench)
    assert come(bench, desk) == [b"a"]


def test_nothing_is_decided_before_the_log_of_the_last_master_is_dispatched() -> None:
    bench = bench_of(confirm=ConfirmSource.REPLICATION)
    store = bench.store
    store.become_master(1)
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10))
    desk = DelayDesk(store)
    desk.begin()
    end = store.log.wrote.value
    bench.clock.advance(1)
    assert not desk.ready
    assert desk.deliver() == 0
    with pytest.raises(NotReadyError):
        desk.recall(RecallHandle("T", 1, "a", 0))
    store.flush()
    store.confirmed.advance(end)
    store.reput.run_to()
    assert desk.deliver() == 1


def test_an_unconfirmed_delivery_of_the_last_term_waits_again_when_it_is_cut() -> None:
    bench = bench_of(confirm=ConfirmSource.REPLICATION)
    store = bench.store
    store.become_master(1)
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10))
    confirmed = store.log.wrote.value
    desk = DelayDesk(store)
    desk.begin()
    store.flush()
    store.confirmed.advance(confirmed)
    store.reput.run_to()
    bench.clock.advance(1)
    assert desk.deliver() == 1
    assert desk.deliver() == 0, "it is taken, although dispatch has not come to it"
    desk.end()
    store.become_slave()
    store.truncate(confirmed)
    store.become_master(2)
    desk.begin()
    store.reput.run_to()
    assert desk.deliver() == 1
    store.flush()
    store.confirmed.advance(store.log.wrote.value)
    store.reput.run_to()
    assert bench.bodies() == [b"a"]


def test_a_recalled_message_never_comes() -> None:
    bench = bench_of()
    result = put_waiting(bench, waiting_put(bench, "a", due_ms=bench.clock.now_ms() + 5_000))
    offset = result.segments[0].physical_offset
    handle = handle_of("T", bench.clock.now_ms() + 5_000, "a", offset)
    desk = ready_desk(bench)
    first = desk.recall(handle)
    assert first.log_offset == offset
    assert first.end_offset == bench.store.log.wrote.value
    assert desk.recall(handle) == first, "a second one waits for the same record"
    bench.settle()
    assert desk.recall(handle).end_offset == 0, "it is confirmed already"
    bench.clock.advance(100)
    assert come(bench, desk) == []
    assert len(bench.store.delays.rows) == 0


def test_after_a_restart_a_recall_may_be_repeated() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=5_000))
    handle = handle_of("T", bench.clock.now_ms() + 5_000, "a", 0)
    ready_desk(bench).recall(handle)
    bench.settle()
    bench.reopen()
    assert ready_desk(bench).recall(handle).end_offset == 0


def test_a_broker_s_handle_finds_the_message_by_its_key() -> None:
    bench = bench_of()
    due_ms = bench.clock.now_ms() + 5_000
    put_waiting(bench, waiting_put(bench, "b", due_ms=due_ms))
    put_waiting(bench, waiting_put(bench, "a", due_ms=due_ms))
    desk = ready_desk(bench)
    recalled = desk.recall(replace(handle_of("T", due_ms, "a", 0), log_offset=-1))
    assert recalled.due_ms == due_ms
    bench.settle()
    bench.clock.advance(10)
    assert come(bench, desk) == [b"b"]


@pytest.mark.parametrize(
    ("topic", "key", "offset"), [("T", "b", 0), ("other", "a", 0), ("T", "a", 77), ("T", "zz", -1)]
)
def test_a_handle_of_something_else_calls_nothing_back(topic: str, key: str, offset: int) -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=5_000))
    desk = ready_desk(bench)
    with pytest.raises(NotWaitingError):
        desk.recall(RecallHandle(topic, bench.clock.now_ms() + 5_000, key, offset))
    bench.clock.advance(5)
    assert come(bench, desk) == [b"a"]


def test_a_message_that_came_is_not_called_back() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10))
    handle = handle_of("T", bench.clock.now_ms() + 10, "a", 0)
    desk = ready_desk(bench)
    bench.clock.advance(1)
    assert desk.deliver() == 1
    with pytest.raises(NotWaitingError):
        desk.recall(handle)
    bench.settle()
    with pytest.raises(NotWaitingError):
        desk.recall(handle)
    assert bench.bodies() == [b"a"]


def test_a_damaged_record_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of()
    offsets = [
        put_waiting(bench, waiting_put(bench, name, delay_ms=10)).segments[0].physical_offset
        for name in "abc"
    ]
    desk = ready_desk(bench)
    damage(bench, offsets[1] + 88, b"?")
    bench.clock.advance(1)
    assert come(bench, desk) == [b"a", b"c"]
    assert "log offset" in caplog.text
    damage(bench, offsets[1] + 88, b"b")
    bench.clock.advance(61)
    assert come(bench, desk) == [b"a", b"c", b"b"], "it is tried again"


def damage(bench: Bench, offset: int, data: bytes) -> None:
    name = bench.store.directory / "commitlog" / f"{0:020d}"
    bench.files.content(name)[offset : offset + len(data)] = data


def test_a_topic_that_was_deleted_does_not_stop_the_others() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10))
    bench.store.topics.create(
        replace(bench.store.topics.table["T"], name="U"), bench.clock.now_ms()
    )
    put_waiting(bench, waiting_put(bench, "b", delay_ms=10, topic="U"))
    desk = ready_desk(bench)
    bench.store.topics.delete("T", bench.clock.now_ms())
    bench.clock.advance(1)
    assert come(bench, desk, topic="U") == [b"b"]
    assert not len(bench.store.delays.rows)


def test_a_clock_that_is_set_shifts_delays_and_no_times() -> None:
    bench = bench_of()
    now = bench.clock.now_ms()
    put_waiting(bench, waiting_put(bench, "delay", delay_ms=1_800_000))
    put_waiting(bench, waiting_put(bench, "time", due_ms=now + 1_800_000))
    desk = ready_desk(bench)
    assert come(bench, desk) == []
    bench.clock.jump(-7_200)
    for _ in range(25):
        bench.clock.advance(60)
        assert come(bench, desk) == []
    bench.clock.advance(301)
    assert come(bench, desk) == [b"delay"]
    bench.clock.advance(7_200)
    assert come(bench, desk) == [b"delay", b"time"]


def test_a_clock_that_is_set_forward_lets_nothing_come_early() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "delay", delay_ms=3_600_000))
    desk = ready_desk(bench)
    assert come(bench, desk) == []
    bench.clock.jump(36_000)
    for _ in range(59):
        bench.clock.advance(60)
        assert come(bench, desk) == []
    bench.clock.advance(61)
    assert come(bench, desk) == [b"delay"]


def test_as_many_as_there_are_come_in_few_appends() -> None:
    bench = bench_of(commit_log_file_size=1 << 26, queue_file_size=20 * 100_000)
    puts = [waiting_put(bench, f"{number}", delay_ms=10) for number in range(20_000)]
    for first in range(0, len(puts), 2_000):
        put_waiting(bench, *puts[first : first + 2_000])
    desk = ready_desk(bench)
    bench.clock.advance(1)
    appends = 0
    while desk.deliver():
        appends += 1
    assert appends <= 6
    assert desk.counts.delivered == 20_000


def test_random_recalls_and_deliveries_have_one_outcome_each() -> None:
    random = Random(7)
    bench = bench_of()
    desk = ready_desk(bench)
    handles, recalled = {}, set()
    for number in range(300):
        name = f"{number}"
        delay_ms = random.choice([10, 500, 1_000, 3_000])
        result = put_waiting(bench, waiting_put(bench, name, delay_ms=delay_ms))
        due_ms = result.store_timestamp + delay_ms
        handles[name] = handle_of("T", due_ms, name, result.segments[0].physical_offset)
        if random.random() < 0.5:
            bench.settle()
        if random.random() < 0.3:
            desk.deliver()
        for chosen in random.sample(sorted(handles), min(3, len(handles))):
            try:
                desk.recall(handles[chosen])
                recalled.add(chosen)
            except NotWaitingError:
                pass
        bench.clock.advance(random.choice([0.0, 0.2]))
    bench.settle()
    bench.clock.advance(10)
    came = [body.decode() for body in come(bench, desk)]
    assert len(came) == len(set(came))
    assert set(came) | recalled == set(handles)
    assert not set(came) & recalled


def test_units_of_both_topics_are_as_a_broker_makes_them() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", level=3), waiting_put(bench, "b", delay_ms=1))
    bench.settle()
    (scheduled,) = stored(bench, SCHEDULE_TOPIC, 2)
    unit = bench.store.queues.read(bench.store.queue_table.get(SCHEDULE_TOPIC, 2), 0, 1)
    assert int(np.asarray(unit["tags_code"])[0]) == scheduled.store_timestamp + 10_000
    (timed,) = stored(bench, TIMER_TOPIC, 0)
    assert timed.queue_offset == 0


def test_retention_lets_what_waits_wait_on_in_a_new_record() -> None:
    bench = bench_of(commit_log_file_size=8192, retention=RetentionConfig(reserved_hours=1))
    put_waiting(bench, waiting_put(bench, "a", level=18), waiting_put(bench, "b", delay_ms=10**8))
    due = {"a": 7_200_000, "b": 10**8}
    desk = ready_desk(bench)
    bench.put(60, size=200)
    bench.put(60, size=200)
    bench.settle()
    bench.store.persist()
    cleaner = bench.store._cleaner
    cleaner.config = replace(cleaner.config, delete_hours=tuple(range(24)))
    for _ in range(8):
        cleaner.run(bench.store._write_lock)
        bench.clock.advance(600)
    assert bench.store.log.min_offset == 0
    assert bench.store.retention_waits_for == 8192
    assert desk.roll(bench.store.retention_waits_for) == 2
    assert desk.roll(bench.store.retention_waits_for) == 0, "they are taken"
    bench.settle()
    bench.store.persist()
    cleaner.run(bench.store._write_lock)
    assert bench.store.log.min_offset >= 8192
    bench.reopen()
    desk = ready_desk(bench)
    waiting = bench.store.delays.rows.page((0, 0), 10)
    assert waiting.due_ms.tolist() == [1_700_000_000_000 + due["a"], 1_700_000_000_000 + due["b"]]
    bench.clock.advance(10**5)
    before = len(bench.bodies())
    assert come(bench, desk)[before:] == [b"a", b"b"]


def test_a_record_that_cannot_be_read_is_given_up_when_its_file_is_to_go() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", delay_ms=10**7))
    desk = ready_desk(bench)
    damage(bench, 88, b"?")
    assert desk.roll(100) == 1
    bench.settle()
    assert not len(bench.store.delays.rows)
    assert bench.store.delays.needs_from() == ANYWHERE


def test_a_record_that_a_broker_rolled_replaces_the_older_one() -> None:
    bench = bench_of()
    due_ms = bench.clock.now_ms() + 5_000
    put = waiting_put(bench, "a", due_ms=due_ms)
    put_waiting(bench, put)
    rolled = replace(put, properties=put.properties + b"TIMER_ROLL_TIMES\x011\x02")
    bench.store.put_own(lambda: batch_of([rolled]))
    desk = ready_desk(bench)
    bench.clock.advance(10)
    assert come(bench, desk) == [b"a"]


def test_a_message_that_a_broker_delivered_does_not_come_again() -> None:
    bench = bench_of()
    put_waiting(bench, waiting_put(bench, "a", level=1), waiting_put(bench, "b", level=1))
    copy = waiting_put(bench, "a", level=1)
    bench.store.put_own(lambda: batch_of([replace(copy, topic="T", queue_id=0)]))
    desk = ready_desk(bench)
    bench.clock.advance(10)
    assert come(bench, desk) == [b"a", b"b"]


@pytest.mark.parametrize("together", [False, True], ids=["batch by batch", "in one batch"])
def test_a_message_that_a_broker_tries_again_waits_though_it_came_before(together: bool) -> None:
    """Its group failed, and the broker let it wait a second time, with the same key."""
    bench = bench_of()
    wait = waiting_put(bench, "a", level=1)
    for put in (wait, replace(wait, topic="T", queue_id=0), wait):
        bench.store.put_own(lambda put=put: batch_of([put]))  # type: ignore[misc]
        if not together:
            bench.settle()
    bench.settle()
    assert len(bench.store.delays.rows) == 1
    desk = ready_desk(bench)
    bench.clock.advance(10)
    assert come(bench, desk) == [b"a", b"a"]

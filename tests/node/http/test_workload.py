"""Traffic by topic and lag by group, on a real store in memory."""

from dataclasses import replace

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, Bench
from fakes.waiting import put_waiting, waiting_put
from tandemlog_server.node.http import workload as module
from tandemlog_server.node.http.workload import Lag, TopicNumbers, Workload
from tandemlog_server.storage.config import ConfirmSource


def workload(
    bench: Bench, *, max_topics: int = 10, max_groups: int = 10, leads: bool = True
) -> Workload:
    return Workload(
        bench.store,
        max_topics=max_topics,
        max_groups=max_groups,
        leads=lambda: leads,
        monotonic=bench.clock.monotonic,
    )


def test_traffic_is_counted_by_topic() -> None:
    bench = Bench(topics=("A", "B"))
    puts = [Put("A", 0, b"1"), Put("B", 1, b"22"), Put("A", 3, b"333"), Put("A", 0, b"4")]
    batch = batch_of(puts)
    bench.store.put(batch)
    seen = workload(bench)
    assert seen.numbers().topics["A"] == TopicNumbers()  # not dispatched: no reader sees it yet
    bench.settle()
    found = seen.numbers().topics
    sizes = batch.sizes.tolist()
    assert found["A"] == TopicNumbers(3, sizes[0] + sizes[2] + sizes[3], 0, 0)
    assert found["B"] == TopicNumbers(1, sizes[1], 0, 0)
    bench.bodies("B", 1)
    assert seen.numbers().topics["B"] == TopicNumbers(1, sizes[1], 1, sizes[1])


def test_new_queues_are_found_by_the_next_scrape() -> None:
    bench = Bench(topics=("A", "B"))
    bench.put(2, "A")
    bench.settle()
    seen = workload(bench)
    assert seen.numbers().topics["A"].messages_in == 2
    bench.put(1, "A", 2)
    bench.put(5, "B")
    bench.settle()
    assert {name: each.messages_in for name, each in seen.numbers().topics.items()} == {
        "A": 3,
        "B": 5,
    }


def test_columns_grow_with_the_queues() -> None:
    topics = tuple(f"t{number}" for number in range(300))
    bench = Bench(replace(CONFIG, commit_log_file_size=1 << 20), topics=topics)
    for queue_id in range(4):
        bench.store.put(batch_of([Put(topic, queue_id, b"x") for topic in topics]))
    bench.settle()
    found = workload(bench, max_topics=300).numbers().topics
    assert {each.messages_in for each in found.values()} == {4}
    assert len(found) == 300


def test_a_slave_counts_no_puts_and_has_no_lags() -> None:
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION))
    source = Bench()
    source.put(3)
    source.settle()
    bench.store.topics.replace_from_json(source.store.topics.to_json())
    bench.store.append_raw(0, source.store.log.read(0, 8192)[: source.store.log.wrote.value])
    bench.store.advance_confirmed(source.store.log.wrote.value)
    bench.store.consumer_offsets.commit("g", "T", 0, 1)
    bench.settle()
    assert len(bench.bodies()) == 3
    found = workload(bench, leads=False).numbers()
    assert (found.topics["T"].messages_in, found.topics["T"].messages_out) == (0, 3)
    assert found.lags == {}
    bench.store.become_master(1)
    bench.put(2)
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.settle()
    assert workload(bench).numbers().topics["T"].messages_in == 2


def test_topics_beyond_the_bound_are_summed() -> None:
    bench = Bench(topics=("A", "other", "B", "C"))
    for topic in ("A", "other", "B", "C"):
        bench.put(1, topic)
    bench.settle()
    found = workload(bench, max_topics=2).numbers()
    # the first ones keep their names while the node runs; a topic of that name is in the sum
    assert {name: each.messages_in for name, each in found.topics.items()} == {
        "A": 1,
        "other": 2,
        "B": 1,
    }
    assert found.folded_topics == 1
    assert set(workload(bench, max_topics=0).numbers().topics) == {"other"}


def test_lag_is_the_age_of_the_oldest_message_that_is_not_committed() -> None:
    bench = Bench()
    bench.put(2)
    bench.clock.advance(10)
    bench.put(3, queue_id=1)
    bench.settle()
    seen = workload(bench)
    assert seen.numbers().lags == {}
    bench.store.consumer_offsets.commit("g", "T", 0, 2)
    bench.store.consumer_offsets.commit("g", "T", 1, 0)
    bench.clock.advance(5)
    assert seen.numbers().lags == {("g", "T"): Lag(3, 5.0)}
    bench.clock.advance(1)
    assert seen.numbers().lags == {("g", "T"): Lag(3, 6.0)}
    bench.store.consumer_offsets.commit("g", "T", 0, 1)
    assert seen.numbers().lags == {("g", "T"): Lag(4, 16.001)}
    for queue_id, offset in ((0, 2), (1, 3)):
        bench.store.consumer_offsets.commit("g", "T", queue_id, offset)
    assert seen.numbers().lags == {("g", "T"): Lag(0, 0.0)}


def test_what_has_expired_is_no_lag() -> None:
    bench = Bench()
    bench.put(60, size=200)
    bench.settle()
    bench.store.consumer_offsets.commit("g", "T", 0, 0)
    bench.store.log.drop_before(8192)
    bench.store.queues.set_log_minimum(bench.store.log.min_offset)
    first = bench.store.queues.min_offset(bench.store.queue_table.get("T", 0))
    assert first > 0
    assert workload(bench).numbers().lags["g", "T"].messages == 60 - first


def test_an_offset_of_a_queue_without_messages_is_no_lag() -> None:
    bench = Bench()
    bench.put(1)
    bench.settle()
    bench.store.consumer_offsets.commit("g", "T", 3, 0)
    bench.store.consumer_offsets.commit("g", "gone", 0, 4)
    assert workload(bench).numbers().lags == {("g", "T"): Lag(), ("g", "gone"): Lag()}


def test_pairs_beyond_the_bound_are_summed() -> None:
    bench = Bench()
    bench.put(2)
    bench.clock.advance(3)
    bench.put(1)
    bench.settle()
    for group, offset in (("a", 2), ("b", 0), ("c", 1)):
        bench.store.consumer_offsets.commit(group, "T", 0, offset)
    found = workload(bench, max_groups=1).numbers()
    assert found.lags == {("a", "T"): Lag(1, 0.0), ("other", "other"): Lag(5, 3.001)}
    assert found.folded_lags == 2


def test_a_record_is_read_once_while_the_offset_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.put(3)
    bench.settle()
    bench.store.consumer_offsets.commit("g", "T", 0, 0)
    reads: list[int] = []
    original = bench.store.reader.store_timestamp

    def noted(at: int) -> int:
        reads.append(at)
        return original(at)

    monkeypatch.setattr(bench.store.reader, "store_timestamp", noted)
    seen = workload(bench)
    for _ in range(3):
        seen.numbers()
    assert len(reads) == 1
    bench.store.consumer_offsets.commit("g", "T", 0, 1)
    seen.numbers()
    assert len(reads) == 2


def test_a_scrape_that_runs_out_of_time_continues_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.put(1)
    bench.settle()
    for group in ("a", "b", "c"):
        bench.store.consumer_offsets.commit(group, "T", 0, 0)
    bench.clock.advance(2)
    original = bench.store.reader.store_timestamp

    def slow(at: int) -> int:
        bench.clock.work(module.READ_S)
        return original(at)

    monkeypatch.setattr(bench.store.reader, "store_timestamp", slow)
    seen = workload(bench)
    ages = []
    for _ in range(3):
        lags = seen.numbers().lags
        assert {lag.messages for lag in lags.values()} == {1}
        ages.append([lags[group, "T"].seconds > 0 for group in ("a", "b", "c")])
    assert ages == [[True, False, False], [True, True, False], [True, True, True]]


def test_delayed_messages_are_counted_by_when_they_come() -> None:
    bench = Bench()
    for delay_ms in (1_000, 60_000, 60_001, 7_200_000, 100_000_000):
        put_waiting(bench, waiting_put(bench, "x", delay_ms=delay_ms))
    bench.settle()
    seen = workload(bench, leads=False)
    assert seen.numbers().delayed == {"now": 0, "1m": 2, "1h": 1, "1d": 1, "later": 1}
    bench.clock.advance(1)
    assert seen.numbers().delayed == {"now": 1, "1m": 2, "1h": 0, "1d": 1, "later": 1}

"""What a master refuses before it waits: where to, when, how many, and whose."""

from dataclasses import replace

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, Bench
from fakes.waiting import come, put_waiting, ready_desk, waiting_put
from tandemlog.format.constants import SCHEDULE_TOPIC, TIMER_TOPIC
from tandemlog.format.delay.framing import by_level
from tandemlog.format.record.properties import encode_properties
from tandemlog_server.storage.delays.delay_check import real_topics
from tandemlog_server.storage.errors import BatchRefusedError

SMALL = replace(CONFIG, commit_log_file_size=1 << 20, queue_file_size=20 * 1000)


def refused(bench: Bench, *puts: Put) -> BatchRefusedError:
    before = bench.store.log.wrote.value
    with pytest.raises(BatchRefusedError) as caught:
        put_waiting(bench, *puts)
    assert bench.store.log.wrote.value == before
    return caught.value


@pytest.mark.parametrize("many", [0, 100])
def test_a_message_to_no_queue_is_refused_by_its_record(many: int) -> None:
    bench = Bench(SMALL)
    good = [waiting_put(bench, f"{number}", delay_ms=10) for number in range(many + 1)]
    for topic, queue_id, code in (
        ("none", 0, "UNKNOWN_TOPIC"),
        ("T", 4, "UNKNOWN_QUEUE"),
        (TIMER_TOPIC, 0, "INVALID_TOPIC_NAME"),
        (SCHEDULE_TOPIC, 0, "INVALID_TOPIC_NAME"),
        ("a/b", 0, "INVALID_TOPIC_NAME"),
    ):
        bad = waiting_put(bench, "bad", delay_ms=10, topic=topic, queue_id=queue_id)
        error = refused(bench, *good, bad)
        assert (error.code, error.record_index) == (code, len(good))


@pytest.mark.parametrize("many", [0, 100])
def test_a_record_that_does_not_say_when_is_refused(many: int) -> None:
    bench = Bench(SMALL)
    good = [waiting_put(bench, f"{number}", delay_ms=10) for number in range(many + 1)]
    level = encode_properties(by_level("T", 0, 3))
    for topic, queue_id, properties in (
        (TIMER_TOPIC, 0, b""),
        (TIMER_TOPIC, 0, b"TIMER_OUT_MS\x015\x02"),
        (TIMER_TOPIC, 0, b"TIMER_OUT_MS\x015\x02REAL_TOPIC\x01T\x02"),
        (TIMER_TOPIC, 0, b"TIMER_DEL_UNIQKEY\x01k\x02TIMER_OUT_MS\x015\x02"),
        (TIMER_TOPIC, 0, good[0].properties + b"TIMER_ROLL_TIMES\x011\x02"),
        (SCHEDULE_TOPIC, 0, level),
        (SCHEDULE_TOPIC, 2, encode_properties({"REAL_TOPIC": "T", "REAL_QID": "0"})),
    ):
        error = refused(bench, *good, Put(topic, queue_id, b"x", properties))
        assert (error.code, error.record_index) == ("BAD_RECORD", len(good)), properties
    for topic, queue_id in ((TIMER_TOPIC, 1), (SCHEDULE_TOPIC, 18)):
        error = refused(bench, Put(topic, queue_id, b"x", level))
        assert error.code == "UNKNOWN_QUEUE"


@pytest.mark.parametrize("name", ["TIMER_OUT_MS", "TIMER_DELIVER_MS", "DELAY", "REAL_TOPIC"])
@pytest.mark.parametrize("many", [0, 100])
def test_what_only_a_node_says_is_refused_in_an_ordinary_topic(name: str, many: int) -> None:
    bench = Bench(SMALL)
    good = [Put("T", 0, b"x") for _ in range(many)]
    bad = Put("T", 0, b"x", f"{name}\x01T\x02".encode())
    error = refused(bench, *good, bad)
    assert (error.code, error.record_index) == ("BAD_RECORD", len(good))
    assert name in str(error)


def test_the_horizon_is_the_store_s() -> None:
    bench = Bench(replace(SMALL, max_delay_ms=40 * 86_400_000))
    now = bench.clock.now_ms()
    put_waiting(bench, waiting_put(bench, "a", due_ms=now + 40 * 86_400_000))
    error = refused(bench, waiting_put(bench, "a", delay_ms=40 * 86_400_000 + 1))
    assert error.limit == 40 * 86_400_000
    assert "40 days" in str(error)


def test_a_holder_has_a_share_and_the_next_one_gets_in() -> None:
    bench = Bench(replace(SMALL, max_delayed=400))

    def put(holder: str, count: int) -> None:
        bench.clock.advance(0.001)
        puts = [waiting_put(bench, f"{n}", delay_ms=60_000) for n in range(count)]
        bench.store.put(batch_of(puts), holder=holder)

    put("a", 300)
    with pytest.raises(BatchRefusedError, match="300 of them from a, which may have 300"):
        put("a", 1)
    put("b", 75)
    with pytest.raises(BatchRefusedError) as caught:
        put("c", 26)
    assert caught.value.code == "BUSY"
    put("c", 25)
    desk = ready_desk(bench)
    bench.clock.advance(61)
    assert len(come(bench, desk)) == 400
    put("a", 300)


def test_rights_are_asked_for_the_topics_of_the_messages() -> None:
    bench = Bench(SMALL)
    batch = batch_of(
        [
            Put("T", 0, b"x"),
            waiting_put(bench, "a", delay_ms=1, topic="U"),
            waiting_put(bench, "b", delay_ms=1, topic="V"),
            waiting_put(bench, "c", delay_ms=1, topic="U"),
            Put(TIMER_TOPIC, 0, b"x", b""),
        ]
    )
    assert real_topics(batch) == {"U": 1, "V": 2}
    noise = replace(batch, records=bytes(batch.byte_size))
    assert real_topics(noise) == {}

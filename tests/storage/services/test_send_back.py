"""Messages that consumers of RocketMQ send back: they come again later, and end as dead letters."""

from typing import Any

import pytest

from fakes.stores import Bench
from tandemlog.format.record.record import Record, decode_record
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.metadata.topics import new_group
from tandemlog_server.storage.services.delay_desk import DelayDesk
from tandemlog_server.storage.services.send_back import send_back


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.store.groups.ensure("g", 1)
    bench.put(1)
    bench.settle()
    return bench


def newest(bench: Bench, topic: str) -> Record:
    bench.settle()
    dense = bench.store.queue_table.get(topic, 0)
    end = bench.store.queues.max_offset(dense)
    got = bench.store.reader.get(topic, 0, end - 1, 1, 4096)
    return decode_record(bytes(got.records))


def set_row(bench: Bench, **members: Any) -> None:
    bench.store.groups.take_rows({"g": {**new_group("g"), **members}}, (), 1)


def test_a_message_comes_again_by_the_retry_topic(bench: Bench) -> None:
    sent = send_back(bench.store, "g", 0)
    assert sent.topic == "%RETRY%g"
    bench.settle()
    desk = DelayDesk(bench.store)
    desk.begin()
    waiting = bench.bodies("SCHEDULE_TOPIC_XXXX", 2)
    assert waiting == bench.bodies()  # level 3: 10 s
    bench.clock.advance(11)
    assert desk.deliver() == 1
    again = newest(bench, "%RETRY%g")
    assert (again.body, again.reconsume_times) == (waiting[0], 1)
    assert again.properties["RETRY_TOPIC"] == "T"
    first = decode_record(bench.store.reader.record_at(0))
    assert again.properties["ORIGIN_MESSAGE_ID"] == first.msg_id
    # the second time one level later, and it is still the first message that is named
    send_back(bench.store, "g", again.physical_offset)
    bench.settle()
    bench.clock.advance(31)
    assert desk.deliver() == 1
    third = newest(bench, "%RETRY%g")
    assert third.reconsume_times == 2
    assert third.properties["DELAY"] == "4"
    assert third.properties["ORIGIN_MESSAGE_ID"] == first.msg_id


@pytest.mark.parametrize("how", [{"max_retries": 0}, {"delay_level": -1}])
def test_without_retries_left_it_is_a_dead_letter(bench: Bench, how: dict[str, int]) -> None:
    assert send_back(bench.store, "g", 0, **how).topic == "%DLQ%g"
    letter = newest(bench, "%DLQ%g")
    assert letter.reconsume_times == 1
    assert letter.properties["DLQ_ORIGIN_TOPIC"] == letter.properties["RETRY_TOPIC"] == "T"
    assert "DELAY" not in letter.properties


def test_the_group_says_how_often(bench: Bench) -> None:
    set_row(bench, retryMaxTimes=0)
    assert send_back(bench.store, "g", 0).topic == "%DLQ%g"


def test_a_level_above_all_is_the_last_one(bench: Bench) -> None:
    send_back(bench.store, "g", 0, delay_level=99)
    bench.settle()
    assert len(bench.bodies("SCHEDULE_TOPIC_XXXX", 17)) == 1


def test_a_group_without_retry_queues_gets_nothing(bench: Bench) -> None:
    set_row(bench, retryQueueNums=0)
    end = bench.store.log.wrote.value
    assert send_back(bench.store, "g", 0).topic == ""
    assert bench.store.log.wrote.value == end


def test_what_is_not_there_is_refused(bench: Bench) -> None:
    with pytest.raises(StoreError, match="there is no group 'other'"):
        send_back(bench.store, "other", 0)
    with pytest.raises(StoreError, match="no record starts at"):
        send_back(bench.store, "g", 7)

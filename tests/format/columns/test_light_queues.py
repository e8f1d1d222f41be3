"""Which light queues a record is put into, by RocketMQ's rules."""

import pytest

from tandemlog.format.columns.light_queues import light_queues
from tandemlog.format.constants import SCHEDULE_TOPIC


def test_each_named_queue_has_the_number_that_stands_at_its_place() -> None:
    assert light_queues("T", 3, "%LMQ%a,%LMQ%b,c", "5,0,7") == [
        ("%LMQ%a", 0, 5),
        ("%LMQ%b", 0, 0),
        ("c", 3, 7),
    ]


@pytest.mark.parametrize(
    ("topic", "real_topic"),
    [
        (SCHEDULE_TOPIC, "%RETRY%group"),
        ("%RETRY%group", "Orders"),
        ("rmq_sys_wheel_timer", "Orders"),
    ],
)
def test_records_on_their_way_are_in_none(topic: str, real_topic: str) -> None:
    assert light_queues(topic, 0, "%LMQ%a", "5", real_topic) == []


def test_a_delayed_record_is_in_them_where_its_broker_gave_it_numbers() -> None:
    assert light_queues(SCHEDULE_TOPIC, 1, "%LMQ%a", "5", "Orders") == [("%LMQ%a", 0, 5)]
    assert light_queues(SCHEDULE_TOPIC, 1, "%LMQ%a", "", "Orders") == []


@pytest.mark.parametrize(
    ("names", "numbers", "left"),
    [
        ("", "", []),
        ("%LMQ%a", "", []),
        ("%LMQ%a,%LMQ%b", "1", []),
        ("%LMQ%a,,", "1", [("%LMQ%a", 0, 1)]),
        (",%LMQ%a", "1,2", [("%LMQ%a", 0, 2)]),
        ("%LMQ%a/b,%LMQ%c", "1,2", [("%LMQ%c", 0, 2)]),
        ("..,.,%LMQ%c", "1,2,3", [("%LMQ%c", 0, 3)]),
        ("%LMQ%a,%LMQ%b", "x,2", [("%LMQ%b", 0, 2)]),
        ("%LMQ%a,%LMQ%b", "-1,2", [("%LMQ%b", 0, 2)]),
        ("%LMQ%a,%LMQ%a", "1,2", [("%LMQ%a", 0, 1)]),
    ],
)
def test_what_means_nothing_is_left_out(
    names: str, numbers: str, left: list[tuple[str, int, int]]
) -> None:
    assert light_queues("T", 0, names, numbers) == left

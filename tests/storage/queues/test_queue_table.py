"""The dense numbering of queues, against a plain dict."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.storage.queues.queue_table import MAX_QUEUE_ID, QueueTable

QUEUES = st.tuples(
    st.sampled_from(["a", "b", "c", "%RETRY%g"]),
    st.integers(0, 40) | st.sampled_from([63, 64, 100, 5_000, 65_535]),
)


def lookup(table: QueueTable, queues: list[tuple[str, int]]) -> list[int]:
    topics = list(dict.fromkeys(topic for topic, _ in queues))
    found: list[int] = table.dense(
        topics,
        np.array([topics.index(topic) for topic, _ in queues], np.uint32),
        np.array([queue_id for _, queue_id in queues], np.uint32),
    ).tolist()
    return found


@given(st.lists(QUEUES), st.lists(QUEUES, min_size=1))
def test_lookups_agree_with_what_was_registered(
    known: list[tuple[str, int]], asked: list[tuple[str, int]]
) -> None:
    table = QueueTable()
    expected: dict[tuple[str, int], int] = {}
    for topic, queue_id in known:
        expected.setdefault((topic, queue_id), len(expected))
        assert table.register(topic, queue_id) == expected[topic, queue_id]
    assert lookup(table, asked) == [expected.get(queue, -1) for queue in asked]
    assert [table.get(*queue) for queue in asked] == [expected.get(queue, -1) for queue in asked]
    assert table.names() == list(expected)
    assert table.count == len(expected)
    for topic in {topic for topic, _ in known}:
        assert table.queues_of(topic) == {
            queue_id: dense for (each, queue_id), dense in expected.items() if each == topic
        }


def test_next_offsets_start_where_told() -> None:
    table = QueueTable()
    dense = table.register("t", 3, 17)
    assert table.next_queue_offsets[dense] == 17
    table.register("t", 3)
    assert table.next_queue_offsets[dense] == 17
    table.register("t", 3, 18)
    assert table.next_queue_offsets[dense] == 18
    table.clear_offsets()
    assert table.next_queue_offsets[dense] == 0


def test_a_deleted_topic_gets_new_numbers() -> None:
    table = QueueTable()
    first = table.register("t", 0)
    table.register("u", 0)
    assert table.unregister("t") == [first]
    assert table.get("t", 0) == -1
    assert lookup(table, [("t", 0), ("u", 0)]) == [-1, 1]
    assert table.unregister("never there") == []
    assert table.register("t", 0) == 2
    assert table.name(2) == ("t", 0)
    assert table.name(first) == ("t", 0)


def test_many_topics_and_a_growing_one() -> None:
    table = QueueTable()
    for number in range(500):
        table.register(f"topic-{number}", number % 7)
    for queue_id in range(100):
        table.register("topic-3", queue_id)
    assert lookup(table, [("topic-3", 3), ("topic-3", 99), ("topic-499", 2), ("topic-4", 5)]) == [
        3,
        500 + 98,
        499,
        -1,
    ]


@pytest.mark.parametrize("queue_id", [-1, MAX_QUEUE_ID + 1])
def test_queue_ids_have_bounds(queue_id: int) -> None:
    with pytest.raises(ValueError, match="queue id"):
        QueueTable().register("t", queue_id)


def test_an_id_beyond_all_is_unknown() -> None:
    table = QueueTable()
    table.register("t", 0)
    assert lookup(table, [("t", 2**32 - 1)]) == [-1]
    assert table.get("t", -1) == -1


def test_a_topic_number_outside_the_table_is_refused() -> None:
    table = QueueTable()
    with pytest.raises(IndexError):
        table.dense(["t"], np.array([1], np.uint32), np.array([0], np.uint32))


@pytest.mark.parametrize("topics", [*range(14, 19), 31, 32, 33])
def test_an_unknown_topic_has_no_queues_however_many_are_known(topics: int) -> None:
    table = QueueTable()
    names = [f"T{number}" for number in range(topics)]
    for name in names:
        table.register(name, 0)
    asked = [*names, "unknown"]
    numbers = np.arange(len(asked))
    for queue_id in (0, 1):
        found = table.dense(asked, numbers, np.full(len(asked), queue_id))
        assert found.tolist() == ([*range(topics), -1] if queue_id == 0 else [-1] * len(asked))

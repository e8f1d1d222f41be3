"""Queues that are dealt out to members, and which groups pop which topics."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog_server.rocketmq.clients.pop.assignments import (
    AVERAGELY,
    BY_CIRCLE,
    MAX_TOPICS,
    MODES,
    ModeRequest,
    allocate,
    allocate_pops,
    assignment_answer,
    may_pop,
    popped_topics,
    read_mode,
    read_query,
    with_mode,
)

MEMBERS = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("strategy", "dealt"),
    [
        (AVERAGELY, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (BY_CIRCLE, [[0, 3, 6], [1, 4, 7], [2, 5]]),
    ],
)
def test_queues_are_dealt_out_as_by_a_broker(strategy: str, dealt: list[list[int]]) -> None:
    assert [allocate(strategy, each, range(8), MEMBERS) for each in MEMBERS] == dealt


@given(st.sampled_from([AVERAGELY, BY_CIRCLE]), st.integers(0, 40), st.integers(1, 12))
def test_each_queue_has_one_member(strategy: str, queues: int, count: int) -> None:
    members = [f"m{each:02}" for each in range(count)]
    dealt = [allocate(strategy, each, range(queues), members) for each in members]
    assert sorted(each for part in dealt for each in part) == list(range(queues))
    sizes = [len(each) for each in dealt]
    assert max(sizes) - min(sizes) <= 1


def test_a_stranger_gets_no_queue_and_no_other_strategy_is_known() -> None:
    assert allocate(AVERAGELY, "d", range(8), MEMBERS) == []
    with pytest.raises(FormatError, match="CONSISTENT_HASH"):
        allocate("CONSISTENT_HASH", "a", range(8), MEMBERS)


@pytest.mark.parametrize(
    ("member", "queues", "share", "found"),
    [
        ("a", 8, 0, [-1]),
        ("d", 8, 0, [-1]),
        ("a", 8, 3, [-1]),
        ("a", 8, 1, [0, 1, 2, 3]),
        ("d", 8, 1, [6, 7, 0, 1]),
        ("e", 8, 1, []),
        ("c", 2, 1, [0]),
        ("b", 0, 1, []),
    ],
)
def test_those_who_pop_share_queues(member: str, queues: int, share: int, found: list[int]) -> None:
    members = ["a", "b", "c", "d"]
    assert allocate_pops(AVERAGELY, member, range(queues), members, share) == found


def test_what_a_member_asks_is_read() -> None:
    row = {
        "topic": "t",
        "consumerGroup": "g",
        "clientId": "c",
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }
    asked = read_query(json.dumps(row).encode())
    assert (asked.group, asked.topic, asked.client_id) == ("g", "t", "c")
    assert (asked.strategy, asked.broadcasting) == ("AVG", False)
    assert read_query(json.dumps({**row, "messageModel": "BROADCASTING"}).encode()).broadcasting
    for change in ({"topic": ""}, {"clientId": 5}, {"messageModel": "LOCAL"}):
        with pytest.raises(FormatError):
            read_query(json.dumps({**row, **change}).encode())


def test_a_mode_is_read() -> None:
    row = {"topic": "t", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 2}
    assert read_mode(json.dumps(row).encode()) == ModeRequest("g", "t", 2)
    assert read_mode(json.dumps({**row, "popShareQueueNum": -1}).encode()).share == 0
    assert read_mode(json.dumps({**row, "mode": "PULL"}).encode()).share is None
    for change in ({"mode": "PUSH"}, {"popShareQueueNum": "2"}, {"popShareQueueNum": 1 << 31}):
        with pytest.raises(FormatError):
            read_mode(json.dumps({**row, **change}).encode())


def test_the_row_of_a_group_says_what_it_pops() -> None:
    row: dict[str, object] = {"groupName": "g", "attributes": {"tandemlog.start": "latest"}}
    assert popped_topics(row) == {}
    popping = with_mode(with_mode(row, ModeRequest("g", "t", 0)), ModeRequest("g", "u", 3))
    assert popped_topics(popping) == {"t": 0, "u": 3}
    assert popping["attributes"] == {"tandemlog.start": "latest", MODES: '{"t":0,"u":3}'}
    pulling = with_mode(
        with_mode(popping, ModeRequest("g", "u", None)), ModeRequest("g", "t", None)
    )
    assert pulling == row


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"t": "0"}', 5, None])
def test_other_attributes_pop_nothing(text: object) -> None:
    assert popped_topics({"attributes": {MODES: text}}) == {}
    assert popped_topics("no row") == {}


def test_a_group_pops_a_bounded_number_of_topics() -> None:
    row: dict[str, object] = {"attributes": {}}
    for number in range(MAX_TOPICS):
        row = with_mode(row, ModeRequest("g", f"t{number}", 0))
    with pytest.raises(FormatError, match="the most is 256"):
        with_mode(row, ModeRequest("g", "one more", 0))
    with_mode(row, ModeRequest("g", "t5", 4))


def test_retries_are_pulled() -> None:
    assert may_pop("t")
    assert not may_pop("%RETRY%g")


def test_the_answer_names_brokers_queues_and_the_mode() -> None:
    found = json.loads(assignment_answer("t", [("b", -1)], pops=True))
    assert found == {
        "messageQueueAssignments": [
            {"messageQueue": {"brokerName": "b", "queueId": -1, "topic": "t"}, "mode": "POP"}
        ]
    }
    assert json.loads(assignment_answer("t", [], pops=False)) == {"messageQueueAssignments": []}
    assert json.loads(assignment_answer("t", None, pops=False)) == {}

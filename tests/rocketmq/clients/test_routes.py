"""Routes as RocketMQ's clients read them: names, ids and queues, over failovers too."""

import json
from typing import Any

import pytest

from tandemlog_server.rocketmq.clients.broker_topics import broker_topics
from tandemlog_server.rocketmq.clients.routes import (
    BrokerNames,
    RouteNode,
    cluster_info,
    numbers_of,
    object_keys,
    placement,
    route,
    topic_list,
    topic_stats,
)
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.reads.results import QueueRange

NAMES = BrokerNames("C", "b")
TOPIC = TopicConfig("t", 8, 4, 6)
ADDRESS = {"n0": "h0:1", "n1": "h1:1", "n2": "h2:1"}


def nodes(
    master: str, down: tuple[str, ...] = (), without_door: tuple[str, ...] = ()
) -> list[RouteNode]:
    numbers = numbers_of(ADDRESS)
    return [
        RouteNode(
            numbers[name],
            "" if name in without_door else address,
            leads=name == master,
            up=name not in down,
        )
        for name, address in ADDRESS.items()
    ]


def document(topic: TopicConfig, *args: Any, answering: str = "h0:1") -> dict[str, Any]:
    found = json.loads(route(topic, placement(NAMES, nodes(*args), answering)))
    assert isinstance(found, dict)
    return found


def writable_queues(found: dict[str, Any]) -> list[tuple[str, int]]:
    """As TopicPublishInfo of a producer."""
    masters = {each["brokerName"] for each in found["brokerDatas"] if "0" in each["brokerAddrs"]}
    return [
        (each["brokerName"], number)
        for each in sorted(found["queueDatas"], key=lambda each: str(each["brokerName"]))
        if each["perm"] & 2 and each["brokerName"] in masters
        for number in range(each["writeQueueNums"])
    ]


def readable_queues(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [
        (each["brokerName"], number)
        for each in found["queueDatas"]
        if each["perm"] & 4
        for number in range(each["readQueueNums"])
    ]


def addresses(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {each["brokerName"]: each["brokerAddrs"] for each in found["brokerDatas"]}


def test_the_route_of_three_nodes() -> None:
    assert document(TOPIC, "n0") == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "h0:1", "1": "h1:1", "2": "h2:1", "3": "h0:1"},
                "brokerName": "b",
                "cluster": "C",
                "enableActingMaster": False,
            },
            {
                "brokerAddrs": {"0": "h1:1"},
                "brokerName": "b-w1",
                "cluster": "C",
                "enableActingMaster": False,
            },
            {
                "brokerAddrs": {"0": "h2:1"},
                "brokerName": "b-w2",
                "cluster": "C",
                "enableActingMaster": False,
            },
        ],
        "filterServerTable": {},
        "queueDatas": [
            queues("b", 6, 8, 4),
            queues("b-w1", 2, 0, 4),
            queues("b-w2", 2, 0, 4),
        ],
    }


def queues(name: str, perm: int, read: int, write: int) -> dict[str, object]:
    return {
        "brokerName": name,
        "perm": perm,
        "readQueueNums": read,
        "topicSysFlag": 0,
        "writeQueueNums": write,
    }


@pytest.mark.parametrize(
    "state",
    [("n0",), ("n1",), ("n2", ("n0",)), ("n1", ("n0", "n2")), ("", ("n1",)), ("n0", (), ("n1",))],
)
def test_queues_never_change_with_the_state_of_the_cluster(state: tuple[Any, ...]) -> None:
    before, now = document(TOPIC, "n0"), document(TOPIC, *state, answering="h2:1")
    assert writable_queues(now) == writable_queues(before)
    assert len(writable_queues(now)) == 12
    assert readable_queues(now) == [("b", number) for number in range(8)]


def test_no_route_has_the_address_of_a_node_that_is_down_or_has_no_door() -> None:
    for state in (("n1", ("n0",)), ("n1", (), ("n0",))):
        found = addresses(document(TOPIC, *state, answering="h1:1"))
        assert found["b"] == {"0": "h1:1", "1": "h1:1", "2": "h2:1", "3": "h2:1"}
        assert [found["b-w1"]["0"], found["b-w2"]["0"]] == ["h2:1", "h2:1"]
    alone = addresses(document(TOPIC, "n1", ("n0", "n2"), answering="h1:1"))
    assert {each for one in alone.values() for each in one.values()} == {"h1:1"}
    assert list(alone) == ["b", "b-w1", "b-w2"]


def test_a_node_keeps_its_number_over_a_failover_as_slave_and_as_master() -> None:
    """Whatever number a node is suggested by, a client finds it in a route of before."""
    states: list[tuple[Any, ...]] = [("n0",), ("n1", ("n0",)), ("", ("n0",)), ("n1",), ("n2",)]
    for state in states:
        found = addresses(document(TOPIC, *state, answering="h2:1"))["b"]
        assert sorted(found) == ["0", "1", "2", "3"]
        assert (found["1"], found["2"]) == ("h1:1", "h2:1")
        # who may be elected should have no readers, so none takes its place without a master
        down = state[0] and "n0" in (state[1] if len(state) > 1 else ())
        assert (found["3"] == "h0:1") is not bool(down)


def test_without_a_master_the_node_that_answers_stands_for_it() -> None:
    found = addresses(document(TOPIC, "", ("n0",), answering="h2:1"))
    assert found["b"]["0"] == "h2:1"
    assert {each["0"] for each in found.values()} == {"h1:1", "h2:1"}


def test_a_node_alone_has_no_alias() -> None:
    only = [RouteNode(1, "h0:1", leads=True)]
    found = json.loads(route(TOPIC, placement(NAMES, only, "h0:1")))
    assert addresses(found) == {"b": {"0": "h0:1"}}
    assert len(found["queueDatas"]) == 1


def test_who_cannot_be_handed_on_gets_no_alias() -> None:
    place = placement(NAMES, nodes("n0"), "h0:1")
    found = json.loads(route(TOPIC, place, aliases=False))
    assert list(addresses(found)) == ["b"]
    assert writable_queues(found) == [("b", number) for number in range(4)]


def test_a_model_has_queues_to_write_behind_each_alias() -> None:
    """A Java producer sets both numbers of a new topic to the smaller of its own default and the
    model's queues to read."""
    found = document(broker_topics("C", "b")["TBW102"], "n0")
    assert [each["readQueueNums"] for each in found["queueDatas"]] == [8, 8, 8]
    assert [each["perm"] for each in found["queueDatas"]] == [7, 3, 3]


def test_an_ordered_topic_lists_all_queues_to_write() -> None:
    found = document(TopicConfig("t", 4, 4, 6, order=True), "n0")
    assert found["orderTopicConf"] == "b:4;b-w1:4;b-w2:4"
    assert "orderTopicConf" not in document(TopicConfig("t", 4, 4, 4, order=True), "n0")


def test_a_topic_that_takes_nothing_has_no_queue_to_write() -> None:
    assert writable_queues(document(TopicConfig("t", 4, 4, 4), "n0")) == []


def test_the_cluster_has_one_broker() -> None:
    place = placement(NAMES, nodes("n0"), "h0:1")
    found = json.loads(cluster_info(place))
    assert found["clusterAddrTable"] == {"C": ["b"]}
    assert list(found["brokerAddrTable"]) == ["b"]
    # a tool shows each row
    assert found["brokerAddrTable"]["b"]["brokerAddrs"] == {"0": "h0:1", "1": "h1:1", "2": "h2:1"}


def test_lists_and_tables() -> None:
    assert topic_list(["b", "a"]) == b'{"topicList":["a","b"]}'
    stats = topic_stats(NAMES, "t", 1, [QueueRange("t", 1, 5, 9, 11, 17)])
    empty = b'{"brokerName":"b","queueId":0,"topic":"t"}'
    full = b'{"brokerName":"b","queueId":1,"topic":"t"}'
    assert stats == (
        b'{"offsetTable":{'
        + empty
        + b':{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0},'
        + full
        + b':{"lastUpdateTimestamp":17,"maxOffset":9,"minOffset":5}},"topicPutTps":0.0}'
    )
    assert object_keys([]) == b"{}"


def test_topics_that_a_broker_has_by_itself() -> None:
    own = broker_topics("C", "b")
    assert own["TBW102"].perm == 7
    assert {"C", "b", "C_REPLY_TOPIC", "SCHEDULE_TOPIC_XXXX"} <= set(own)
    assert own["SCHEDULE_TOPIC_XXXX"].write_queues == 18
    assert broker_topics("x", "x")["x"].write_queues == 16

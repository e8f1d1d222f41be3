"""A broker's topics, groups and offsets in a store, beside the groups of our own readers."""

import json

import pytest

from fakes.fake_rocketmq import default_tables
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog_server.rocketmq.follow import broker_tables
from tandemlog_server.rocketmq.follow.broker_tables import BROKER_GROUPS, BrokerTables, TableKeeper
from tandemlog_server.rocketmq.wire.errors import BrokerError
from tandemlog_server.rocketmq.wire.requests import (
    GET_ALL_CONSUMER_OFFSET,
    GET_ALL_MESSAGE_REQUEST_MODE,
    GET_ALL_SUBSCRIPTION_GROUP_CONFIG,
    GET_ALL_TOPIC_CONFIG,
)
from tandemlog_server.storage.metadata.json_file import parse


@pytest.fixture
def bench() -> Bench:
    return Bench(CONFIG, topics=())


@pytest.fixture
def keeper(bench: Bench) -> TableKeeper:
    return TableKeeper(bench.store, bench.files)


def take(keeper: TableKeeper) -> None:
    keeper.replace(BrokerTables(default_tables()), 1)


def test_the_brokers_tables_become_ours(bench: Bench, keeper: TableKeeper) -> None:
    take(keeper)
    store = bench.store
    assert store.topics.names() == ["Orders"]
    assert store.groups.names() == ["theirs"]
    assert store.consumer_offsets.of_pair("Orders", "theirs") == {0: 3, 1: 2}
    delays = json.loads(
        bench.files.read_file(DIRECTORY / "config/delayOffset.json").replace(b"3:", b'"3":')
    )
    assert delays == {"offsetTable": {"3": 7}}
    document = json.loads(store.topics.to_json())
    assert set(document) == {"dataVersion", "topicConfigTable"}
    assert keeper.groups == {"theirs"}


def test_our_own_readers_keep_their_groups_and_offsets(bench: Bench, keeper: TableKeeper) -> None:
    store = bench.store
    take(keeper)
    store.groups.ensure("ours", 2)
    store.consumer_offsets.commit("ours", "Orders", 0, 9)
    tables = default_tables()
    tables[GET_ALL_SUBSCRIPTION_GROUP_CONFIG] = b'{"subscriptionGroupTable":{"new":{}}}'
    tables[GET_ALL_CONSUMER_OFFSET] = b'{"offsetTable":{"Orders@new":{0:1}}}'
    keeper.replace(BrokerTables(tables), 3)
    assert store.groups.names() == ["new", "ours"]
    assert sorted(store.consumer_offsets.pairs()) == [("Orders", "new"), ("Orders", "ours")]
    assert store.consumer_offsets.offset("ours", "Orders", 0) == 9
    assert keeper.groups == {"new"}


def test_which_groups_are_the_brokers_is_known_after_a_restart(
    bench: Bench, keeper: TableKeeper
) -> None:
    take(keeper)
    again = TableKeeper(bench.store, bench.files)
    assert not again.groups
    again.load()
    assert again.groups == {"theirs"}
    # and a first round without them does not take a group of ours for one of theirs
    bench.store.groups.ensure("ours", 2)
    take(again)
    assert bench.store.groups.names() == ["ours", "theirs"]
    assert bench.files.status(DIRECTORY / "tandemlog" / BROKER_GROUPS) is not None


def test_what_has_not_changed_is_not_written_again(bench: Bench, keeper: TableKeeper) -> None:
    take(keeper)
    version = bench.store.groups.version
    take(keeper)
    assert bench.store.groups.version == version
    bench.store.consumer_offsets.commit("theirs", "Orders", 0, 1)  # as a cut of the log may do
    keeper.start_over()
    take(keeper)
    assert bench.store.consumer_offsets.offset("theirs", "Orders", 0) == 3


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"topicConfigTable":{"a":1}}', b"\xff"])
def test_what_cannot_be_read_changes_nothing(
    bench: Bench, keeper: TableKeeper, body: bytes
) -> None:
    take(keeper)
    with pytest.raises(BrokerError, match="request 21 cannot be read"):
        keeper.replace(BrokerTables({GET_ALL_TOPIC_CONFIG: body}), 2)
    assert bench.store.topics.names() == ["Orders"]


def test_request_modes_are_kept_for_rocketmq(bench: Bench, keeper: TableKeeper) -> None:
    keeper.replace(BrokerTables({GET_ALL_MESSAGE_REQUEST_MODE: b'{"messageRequestModeMap":{}}'}), 1)
    data = bench.files.read_file(DIRECTORY / "config/messageRequestMode.json")
    assert json.loads(data) == {"messageRequestModeMap": {}}


def topics_body(**rows: object) -> bytes:
    return json.dumps({"topicConfigTable": rows}).encode()


def test_a_row_that_no_topic_can_be_is_left_out_and_named(
    bench: Bench, keeper: TableKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    rows: dict[str, object] = {
        "Good": {"readQueueNums": 4, "writeQueueNums": 0, "perm": 6},
        "host.example.com": {},
        "Many": {"readQueueNums": 10**9},
        "Text": {"writeQueueNums": "--5"},
        "Long": {"perm": 10**30},
        "../up": {},
        "red\x1b[31m": {},
        "n" * 256: {},
    }
    keeper.replace(BrokerTables({GET_ALL_TOPIC_CONFIG: topics_body(**rows)}), 1)
    assert bench.store.topics.names() == ["Good", "host.example.com"]
    assert "6 rows of the broker's answer to request 21 left out" in caplog.text
    assert "'Many': readQueueNums must be 0 .. 65536: '1000000000'" in caplog.text
    assert "'Many'" not in bench.store.topics.to_json().decode()


def test_groups_and_offsets_that_cannot_be_are_left_out(
    bench: Bench, keeper: TableKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    groups = {"good": {"groupName": "good"}, "none": 7, "g\x9b": {}}
    offsets = (
        b'{"offsetTable":{"T@good":{0:3,"1":"4"},"T@far":{0:99999999999999999999},'
        b'"T@queue":{1048576:1},"T@text":{0:"--5"},"T@list":[1]}}'
    )
    keeper.replace(
        BrokerTables(
            {
                GET_ALL_SUBSCRIPTION_GROUP_CONFIG: json.dumps(
                    {"subscriptionGroupTable": groups}
                ).encode(),
                GET_ALL_CONSUMER_OFFSET: offsets,
            }
        ),
        1,
    )
    assert bench.store.groups.names() == ["good"]
    assert bench.store.consumer_offsets.pairs() == [("T", "good")]
    assert bench.store.consumer_offsets.of_pair("T", "good") == {0: 3, 1: 4}
    assert keeper.groups == {"good"}
    assert "4 rows of the broker's answer to request 43 left out" in caplog.text


def test_a_version_that_is_no_number_is_none(bench: Bench, keeper: TableKeeper) -> None:
    version = {"counter": "9" * 5_000, "timestamp": 10**30}
    body = json.dumps({"dataVersion": version, "topicConfigTable": {"T": {}}}).encode()
    keeper.replace(BrokerTables({GET_ALL_TOPIC_CONFIG: body}), 1)
    assert bench.store.topics.names() == ["T"]
    assert bench.store.topics.version == 0


def test_what_cannot_be_read_is_not_parsed_again(
    bench: Bench, keeper: TableKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []

    def noted(body: bytes) -> object:
        parsed.append(body)
        return parse(body)

    monkeypatch.setattr(broker_tables, "parse", noted)
    for _ in range(2):
        with pytest.raises(BrokerError, match="request 21 cannot be read"):
            keeper.replace(BrokerTables({GET_ALL_TOPIC_CONFIG: b"{" * 50}), 1)
    assert len(parsed) == 1
    keeper.replace(BrokerTables({GET_ALL_TOPIC_CONFIG: topics_body(T={})}), 1)
    assert bench.store.topics.names() == ["T"]

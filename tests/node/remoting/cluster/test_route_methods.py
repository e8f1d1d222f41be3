"""Whole nodes that are asked as a name server and a broker are: routes, topics, groups, numbers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.inner_node import config, running, until
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.rocketmq_clients_section import RocketmqClientsSection
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.wire.client import RemotingClient
from tandemlog_server.rocketmq.wire.errors import BrokerRefusedError
from tandemlog_server.storage.metadata.topics import TopicConfig

DOOR = RocketmqClientsSection(listen="127.0.0.1:0", cluster_name="C", broker_name="b")
ROUTE = RequestCode.GET_ROUTE_INFO_BY_TOPIC
CREATE = {
    "topic": "t",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
    "attributes": "",
}


@asynccontextmanager
async def door(node: Node) -> AsyncIterator[RemotingClient]:
    host, _, port = node.endpoints.rocketmq.rpartition(":")
    async with RemotingClient(host, int(port)) as client:
        yield client


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(config(tmp_path / "n0", rocketmq_clients=DOOR)) as node:
        yield node


async def refused(
    client: RemotingClient, code: int, fields: dict[str, str], body: bytes = b""
) -> int:
    with pytest.raises(BrokerRefusedError) as refusal:
        await client.call(code, fields, body)
    return refusal.value.code


async def asked(client: RemotingClient, code: int, **fields: str) -> Any:
    return json.loads((await client.call(code, fields)).body)


async def test_a_route_is_that_of_a_real_broker(master: Node) -> None:
    """Byte for byte what RocketMQ 5.5.0 answered with acceptStandardJsonOnly, but for the
    address."""
    address = master.endpoints.rocketmq_advertise
    async with door(master) as client:
        await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
        for name, perm, queues in (
            ("t", 6, 4),
            ("TBW102", 7, 8),
            ("C", 7, 16),
            ("b", 7, 1),
            ("SCHEDULE_TOPIC_XXXX", 6, 18),
            ("RMQ_SYS_TRANS_HALF_TOPIC", 6, 1),
            ("C_REPLY_TOPIC", 6, 1),
        ):
            answer = await client.call(ROUTE, {"topic": name})
            assert answer.body.decode() == (
                f'{{"brokerDatas":[{{"brokerAddrs":{{"0":"{address}"}},"brokerName":"b",'
                '"cluster":"C","enableActingMaster":false}],"filterServerTable":{},'
                f'"queueDatas":[{{"brokerName":"b","perm":{perm},"readQueueNums":{queues},'
                f'"topicSysFlag":0,"writeQueueNums":{queues}}}]}}'
            )
        info = await client.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert info.body.decode() == (
            f'{{"brokerAddrTable":{{"b":{{"brokerAddrs":{{"0":"{address}"}},"brokerName":"b",'
            '"cluster":"C","enableActingMaster":false}},"clusterAddrTable":{"C":["b"]}}'
        )
        topics = await asked(client, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert {"t", "TBW102", "C", "b"} <= set(topics["topicList"])


async def test_an_unknown_topic_has_no_route_and_a_retry_topic_has_one_at_once(
    master: Node,
) -> None:
    async with door(master) as client:
        assert await refused(client, ROUTE, {"topic": "nope"}) == ResponseCode.TOPIC_NOT_EXIST
        assert await refused(client, ROUTE, {}) == ResponseCode.TOPIC_NOT_EXIST
        assert await refused(client, ROUTE, {"topic": "%RETRY%a b"}) == ResponseCode.TOPIC_NOT_EXIST
        found = await asked(client, ROUTE, topic="%RETRY%g")
        assert [each["perm"] for each in found["queueDatas"]] == [6]
    assert master.store.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1)


async def test_topics_are_made_changed_and_deleted(master: Node) -> None:
    async with door(master) as client:
        await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
        found = await client.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})
        assert found.body == (
            b'{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":'
            b'"SINGLE_TAG","topicName":"t","topicSysFlag":0,"writeQueueNums":4}'
        )
        changed = {**CREATE, "writeQueueNums": "8", "readQueueNums": "8", "attributes": "+a=1"}
        await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, changed)
        bean = await asked(client, RequestCode.GET_TOPIC_CONFIG, topic="t")
        assert (bean["writeQueueNums"], bean["attributes"]) == (8, {"a": "1"})
        stats = await client.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "t"})
        assert stats.body.count(b'"maxOffset":0') == 8
        assert b'{{"brokerName":"b","queueId":0,"topic":"t"}:' in stats.body
        table = await asked(client, RequestCode.GET_ALL_TOPIC_CONFIG)
        assert list(table["topicConfigTable"]) == ["t"]
        for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV):
            await client.call(code, {"topic": "t"})
            await client.call(code, {"topic": "t"})
        for code in (RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO, ROUTE):
            assert await refused(client, code, {"topic": "t"}) == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "bad topic"},
        {"topic": "TBW102"},
        {"topic": ""},
        {"readQueueNums": "many"},
        {"readQueueNums": "0"},
        {"perm": "-1"},
        {"writeQueueNums": "9" * 400},
        {"attributes": "a=b"},
    ],
)
async def test_a_topic_that_cannot_be_is_an_invalid_parameter(
    master: Node, fields: dict[str, str]
) -> None:
    async with door(master) as client:
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        assert await refused(client, code, {**CREATE, **fields}) == 29
        assert await refused(client, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"}) == 29
    assert master.store.topics.names() == []


async def test_groups_are_made_changed_and_deleted(master: Node) -> None:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP
    async with door(master) as client:
        await client.call(code, {}, json.dumps({"groupName": "g", "retryMaxTimes": 3}).encode())
        table = await asked(client, RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG)
        assert table["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 3
        attributes = {"groupName": "g", "attributes": {"+a": "1"}, "consumeEnable": False}
        await client.call(code, {}, json.dumps(attributes).encode())
        row = master.store.groups.table["g"]
        assert isinstance(row, dict)
        assert (row["retryMaxTimes"], row["consumeEnable"]) == (3, False)
        assert row["attributes"] == {"a": "1"}
        for body in (
            b"",
            b"{}",
            b"[]",
            b"{" * 20_000,
            b'{"groupName":"a b"}',
            b'{"groupName":"h","retryMaxTimes":"many"}',
            b'{"groupName":"h","retryMaxTimes":true}',
            b'{"groupName":"h","retryMaxTimes":9999999}',
            b'{"groupName":"h","attributes":{"a":1}}',
        ):
            assert await refused(client, code, {}, body) == 29
        assert "h" not in master.store.groups.table
        await client.call(RequestCode.DELETE_SUBSCRIPTION_GROUP, {"groupName": "g"})
        await client.call(RequestCode.DELETE_SUBSCRIPTION_GROUP, {"groupName": "g"})
    assert "g" not in master.store.groups.table


async def test_numbers_and_settings_have_the_names_that_tools_read(master: Node) -> None:
    async with door(master) as client:
        table = (await asked(client, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        text = (await client.call(RequestCode.GET_BROKER_CONFIG)).body.decode()
    for name in (
        "brokerVersionDesc",
        "putTps",
        "getTransferredTps",
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "commitLogDiskRatio",
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "timerEnqueueTps",
        "timerDequeueTps",
        "brokerActive",
        "msgPutTotalTodayNow",
    ):
        assert isinstance(table[name], str), name
    assert table["putTps"] == "0.0 0.0 0.0"
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert (settings["brokerName"], settings["brokerClusterName"]) == ("b", "C")
    assert settings["autoCreateTopicEnable"] == "true"


async def test_a_slave_answers_everything(tmp_path: Path) -> None:
    async with running(config(tmp_path / "n0", rocketmq_clients=DOOR)) as master:
        slave_config = config(
            tmp_path / "n1",
            node_id="n1",
            role="slave",
            master=master.endpoints.listen,
            rocketmq_clients=DOOR,
        )
        async with running(slave_config) as slave, door(slave) as client:
            await until(lambda: any(row.node_id == "n1" for row in master.members()))
            await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
            assert master.store.topics.get("t") is not None
            await until(lambda: any(row.node_id == "n0" for row in slave.members()))
            found = await asked(client, ROUTE, topic="t")
            addresses = {each["brokerName"]: each["brokerAddrs"] for each in found["brokerDatas"]}
            assert addresses == {
                "b": {
                    "0": master.endpoints.rocketmq_advertise,
                    "1": slave.endpoints.rocketmq_advertise,
                    "2": master.endpoints.rocketmq_advertise,
                },
                "b-w1": {"0": slave.endpoints.rocketmq_advertise},
            }
            master.store.create_topic(TopicConfig("fresh", 4, 4))
            assert (await asked(client, ROUTE, topic="fresh"))["queueDatas"][0]["perm"] == 6
            assert await refused(client, ROUTE, {"topic": "nope"}) == ResponseCode.TOPIC_NOT_EXIST

"""RocketMQ's mqadmin works on a node: the commands with which people run a cluster."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.running import wait_until
from interop.load import Consumer
from interop.mqadmin import Mqadmin
from interop.nodes_for_clients import a_node
from interop.rocketmq import BROKER_NAME, CLUSTER, NameServer

pytestmark = pytest.mark.interop

TOPIC, GROUP = "Managed", "managed-group"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[str]:
    with a_node(tmp_path / "node") as started:
        yield started.address


@pytest.fixture
def mqadmin(tmp_path: Path, node: str) -> Iterator[Mqadmin]:
    with Mqadmin(node, tmp_path / "mqadmin") as started:
        yield started


def rows(said: str) -> list[list[str]]:
    """The words of the lines of a table."""
    return [line.split() for line in said.splitlines() if line and not line.startswith("#")]


def broker_of(mqadmin: Mqadmin) -> str:
    """The address of the only broker."""
    brokers = rows(mqadmin("clusterList"))
    (broker,) = [each for each in brokers if each[:2] == [CLUSTER, BROKER_NAME]]
    assert broker[2] == "0"
    assert broker[4].startswith("V5")
    return broker[3]


def test_topics_and_messages(mqadmin: Mqadmin, node: str) -> None:
    address = broker_of(mqadmin)
    assert address == node
    where = ["-b", address]
    said = mqadmin("updateTopic", *where, "-t", TOPIC, "-r", "4", "-w", "4")
    assert f"create topic to {address} success" in said
    assert "readQueueNums=4" in said
    assert TOPIC in mqadmin("topicList").split()
    said = mqadmin("topicRoute", "-t", TOPIC)
    assert f'"{address}"' in said
    assert '"readQueueNums":4' in said
    assert mqadmin("topicClusterList", "-t", TOPIC).split() == [CLUSTER]
    said = mqadmin("updateTopic", *where, "-t", "InOrder", "-r", "4", "-w", "4", "-o", "true")
    assert f"orderConf=[{BROKER_NAME}:4]" in said
    assert f'"orderTopicConf":"{BROKER_NAME}:4"' in mqadmin("topicRoute", "-t", "InOrder")

    message = ["-p", "hello", "-k", "key-1", "-c", "tag-1", "-b", BROKER_NAME, "-i", "1"]
    (sent,) = rows(mqadmin("sendMessage", "-t", TOPIC, *message))
    assert sent[:3] == [BROKER_NAME, "1", "SEND_OK"]
    unique_id = sent[3]
    wait_until(
        "the message to be counted",
        lambda: (
            [BROKER_NAME, "1", "0", "1"]
            in [each[:4] for each in rows(mqadmin("topicStatus", "-t", TOPIC))]
        ),
    )
    assert unique_id in mqadmin("queryMsgByKey", "-t", TOPIC, "-k", "key-1")
    said = mqadmin("queryMsgByUniqueKey", "-t", TOPIC, "-i", unique_id)
    assert f"UNIQ_KEY={unique_id}" in said
    place = ["-b", BROKER_NAME, "-i", "1", "-o", "0"]
    said = mqadmin("queryMsgByOffset", "-t", TOPIC, *place)
    found = re.search(r"OffsetID: +(\S+)", said)
    assert found, said
    said = mqadmin("queryMsgById", "-t", TOPIC, "-i", found[1])
    assert "Keys:                [key-1]" in said
    assert "BODY: hello" in mqadmin("consumeMessage", "-t", TOPIC, *place)
    assert "BODY: hello" in mqadmin("printMsg", "-t", TOPIC)

    assert f"delete topic [{TOPIC}] from cluster [{CLUSTER}] success" in mqadmin(
        "deleteTopic", "-c", CLUSTER, "-t", TOPIC
    )
    assert "CODE: 17" in mqadmin("topicRoute", "-t", TOPIC)


def test_groups_and_the_broker(tmp_path: Path, mqadmin: Mqadmin, node: str) -> None:
    address = broker_of(mqadmin)
    assert address == node
    where = ["-b", address]
    mqadmin("updateTopic", *where, "-t", TOPIC, "-r", "2", "-w", "2")
    said = mqadmin("updateSubGroup", *where, "-g", GROUP, "-r", "5")
    assert f"create subscription group to {address} success" in said
    assert "retryMaxTimes=5" in said
    message = ["-p", "hello", "-k", "key", "-c", "tag", "-b", BROKER_NAME, "-i", "0"]
    # the command keeps a producer, and cannot send a second message in the same process
    assert "SEND_OK" in mqadmin("sendMessage", "-t", TOPIC, *message)

    name_server = NameServer(tmp_path / "named", port=int(node.rpartition(":")[2]))
    with Consumer(name_server, tmp_path / "consumer", TOPIC, GROUP) as consumer:
        wait_until("the message", lambda: consumer.count() == 1, 60)
        said = mqadmin("consumerConnection", "-g", GROUP)
        assert "ConsumeType: CONSUME_PASSIVELY" in said
        assert [TOPIC, "*"] in rows(said), said
        wait_until(
            "its offset",
            lambda: (
                [TOPIC, BROKER_NAME, "0", "1", "1"]
                in [each[:5] for each in rows(mqadmin("consumerProgress", "-g", GROUP))]
            ),
        )
        (group,) = [each for each in rows(mqadmin("consumerProgress")) if each[0] == GROUP]
        assert group[1] == "1"
        said = mqadmin("consumerStatus", "-g", GROUP)
        assert "@consumer" in said, said
        assert "Rebalance OK" in said

    said = mqadmin("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "1000")
    assert [BROKER_NAME, "0", "0"] in rows(said)
    assert [TOPIC, BROKER_NAME, "0", "1", "0"] in [
        each[:5] for each in rows(mqadmin("consumerProgress", "-g", GROUP))
    ]
    assert "brokerVersionDesc               : V5" in mqadmin("brokerStatus", *where)
    assert re.search(rf"brokerName += +{BROKER_NAME}", mqadmin("getBrokerConfig", *where))
    said = mqadmin("deleteSubGroup", *where, "-g", GROUP)
    assert f"delete subscription group [{GROUP}] from broker [{address}] success" in said

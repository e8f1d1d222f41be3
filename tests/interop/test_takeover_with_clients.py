"""A fleet of RocketMQ's clients stays up while a node takes the place of its broker.

The recipe of docs/rocketmq-live.md: the node has the broker's names and follows it, takes over, and
then the name of the name server moves. Producers and consumers are the processes that they were.
"""

from collections import Counter
from pathlib import Path

import pytest

from helpers import forked
from helpers.running import free_ports, wait_until
from interop.live import QUEUES, TOPIC, check_alone, side_by_side
from interop.moving_name import MovingName
from interop.rocketmq import BROKER_NAME, CLUSTER

pytestmark = [pytest.mark.interop, pytest.mark.lane("live")]

GROUP = "readers"


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_clients_go_on_through_a_takeover(tmp_path: Path, version: str) -> None:
    with (
        side_by_side(tmp_path, version) as pair,
        MovingName(f"127.0.0.1:{pair.name_server.port}") as name,
    ):
        pair.name = name
        (port,) = free_ports(1)
        door = {"listen": f"127.0.0.1:{port}", "broker_name": BROKER_NAME, "cluster_name": CLUSTER}
        node = pair.follow(rocketmq_clients=door)
        load = pair.load(rate=500, queues=0)
        consumer = pair.consumer(GROUP, version=version)
        load.wait_for(1_500)

        pair.client.set_broker_config("brokerPermission", 4)
        before = load.acknowledged()
        takeover = forked.run("takeover", "--endpoint", node.endpoint, "--yes", timeout_s=180)
        assert takeover.returncode == 0, takeover.stderr
        name.move(f"127.0.0.1:{port}")
        load.wait_for(1_500, 90)
        pair.broker.stop()
        pair.name_server.kill()
        load.wait_for(1_500)

        load.stop()
        promised = load.acknowledged()
        assert len(promised) >= len(before) + 3_000
        wait_until(
            "the consumer to have all that was acknowledged",
            lambda: {each.key for each in consumer.handled()} >= promised.keys(),
            60,
        )
        consumer.stop()
        stored = Counter(
            str(each.keys) for queue in range(QUEUES) for each in node.read_queue(TOPIC, queue)
        )
        assert {key: stored[key] for key in promised} == dict.fromkeys(promised, 1)
        handled = Counter(each.key for each in consumer.handled())
        assert {key: handled[key] for key in promised} == dict.fromkeys(promised, 1)
        assert node.stop() == 0
        check_alone(node.store)

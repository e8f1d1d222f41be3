"""The tools themselves, with each version of RocketMQ that we follow: a load and a consumer live
through a kill and a restart on the same ports, and the broker has what it acknowledged."""

from pathlib import Path

import pytest

from helpers.running import wait_until
from interop.load import Consumer, Load
from interop.rocketmq import Broker, NameServer, StoreSizes
from interop.store_client import StoreClient

pytestmark = [pytest.mark.interop, pytest.mark.lane("live")]

QUEUES = 4


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_clients_outlive_a_broker(tmp_path: Path, version: str) -> None:
    name_server = NameServer(tmp_path / "namesrv", version)
    broker = Broker(tmp_path / "broker", version)
    clients: list[StoreClient | Load | Consumer] = []
    try:
        name_server.start()
        broker.start(name_server, tmp_path / "store", StoreSizes())
        broker.wait_until_serving()
        clients.append(client := StoreClient(name_server, tmp_path / "client", version))
        client.create_topic("Orders", QUEUES)

        where = (name_server, tmp_path / "load", "Orders")
        clients.append(load := Load(*where, queues=QUEUES, rate=2_000, version=version))
        # of the newer version with both: see there
        clients.append(consumer := Consumer(name_server, tmp_path / "read", "Orders", "readers"))
        load.wait_for(2_000)
        port = broker.port
        broker.kill()
        broker.restart()
        broker.wait_until_serving()
        assert broker.port == port
        load.wait_for(500)
        broker.pause()
        wait_until("sends to fail", lambda: "RemotingTimeoutException" in load.summary().statuses)
        broker.resume()
        load.wait_for(500)
        summary = load.stop()
        assert summary.failed, summary
        clients.append(
            bulk := Load(
                *where, queues=QUEUES, batch=50, messages=5_000, prefix="bulk", version=version
            )
        )
        assert bulk.wait_for_end().statuses == {"SEND_OK": 5_000}
        bulk.stop()

        promised = load.acknowledged() | bulk.acknowledged()
        assert len(promised) == summary.ok + 5_000
        records = client.records("Orders", QUEUES)
        assert promised.items() <= records.items()
        wait_until(
            "the consumer to have read everything",
            lambda: {each.key for each in consumer.handled()} >= records.keys(),
            120,
        )
        consumer.stop()
        ends = {
            queue_id: client.call("range", "Orders", queue_id)["max"] for queue_id in range(QUEUES)
        }
        # it does not wait for an answer to its last commit
        wait_until(
            f"the broker to have the group at {ends}",
            lambda: client.consumer_offsets("readers", "Orders") == ends,
        )

        client.set_broker_config("brokerPermission", 4)
        broker.restart()
        broker.wait_until_serving()
        assert "brokerPermission=4" in (broker.home / "broker.properties").read_text()
        assert client.consumer_offsets("readers", "Orders", broker) == ends
    finally:
        for each in clients:
            each.kill()
        broker.kill()
        name_server.kill()

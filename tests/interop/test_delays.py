"""A real broker and a node take turns on a store with delays and timers under way: each message
comes once, at its time, whoever serves the store then."""

import json
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tandemlog
from helpers.running import NodeProcess, Running, free_ports, wait_until
from interop.rocketmq import StoreSizes, write_topics
from interop.store_client import StoreClient, served
from tandemlog import Message

pytestmark = pytest.mark.interop

SIZES = StoreSizes()
TOPIC = "Orders"
BROKER: dict[str, Any] = {
    "timerWheelEnable": "true",
    # it notes what it has delivered every 10 s, else
    "flushDelayOffsetInterval": 500,
}
SETTINGS: dict[str, Any] = {
    "commit_log_file_size": SIZES.commit_log_file_size,
    "queue_file_size": SIZES.queue_file_size,
    "index_slots": SIZES.index_slots,
    "index_entries": SIZES.index_entries,
}


def node_on(folder: Path, store: Path, port: int) -> Running:
    settings = {**SETTINGS, "store_host": f"127.0.0.1:{port}"}
    return Running(folder, flush="sync", store=settings, master_store=store)


def put(client: StoreClient, key: str, **more: Any) -> None:
    row = {"topic": TOPIC, "queue_id": 0, "body": key, "keys": key, **more}
    order = json.dumps({"messages": [row]}, separators=(",", ":"))
    assert client.call("put", order)["sent"] == ["SEND_OK"]


def of_broker(client: StoreClient) -> Counter[str]:
    rows = client.call("pull", TOPIC, 0)["messages"]
    return Counter(row["keys"] for row in rows)


def of_node(node: NodeProcess) -> Counter[str]:
    return Counter(record.keys or "" for record in node.read_queue(TOPIC, 0))


@pytest.mark.parametrize("killed", [False, True])
def test_each_comes_once_whoever_serves_the_store(tmp_path: Path, killed: bool) -> None:
    store = tmp_path / "store"
    write_topics(store, {TOPIC: 1})
    (port,) = free_ports(1)
    with served(store, SIZES, tmp_path / "a", TOPIC, listenPort=port, **BROKER) as (
        broker,
        client,
    ):
        put(client, "level-early", delay=1)
        put(client, "level-late", delay=4)
        put(client, "timer-early", properties={"TIMER_DELAY_MS": "2000"})
        put(client, "timer-late", properties={"TIMER_DELAY_MS": "30000"})
        late = time.time() + 30
        early = {"level-early", "timer-early"}
        wait_until("the early ones", lambda: set(of_broker(client)) == early, timeout_s=30)
        if killed:
            broker.kill()

    with node_on(tmp_path / "b", store, port) as running:
        node = running.master
        if time.time() < late - 5:
            assert set(of_node(node)) == early
        everything = {*early, "level-late", "timer-late"}
        wait_until("the late ones", lambda: set(of_node(node)) >= everything, timeout_s=60)
        with tandemlog.Producer(node.endpoint) as producer:

            def send(key: str, seconds: float) -> tandemlog.SendResult:
                message = Message(TOPIC, key.encode(), keys=key, queue_id=0)
                return producer.send(message, delay=timedelta(seconds=seconds)).result(60)

            send("node-early", 1.5)
            later = send("node-late", 40)
            gone = send("node-gone", 40)
            producer.recall(TOPIC, gone.recall_handle)
        everything.add("node-early")
        wait_until("the node's own", lambda: set(of_node(node)) >= everything, timeout_s=30)
        time.sleep(6)  # and what it notes for a broker
        assert of_node(node) == Counter(everything)
        if killed:
            node.kill()
        else:
            assert node.stop() == 0

    with served(store, SIZES, tmp_path / "c", TOPIC, listenPort=port, **BROKER) as (_, client):
        everything.add("node-late")
        assert later.deliver_at_ms is not None
        wait_until("the last one", lambda: set(of_broker(client)) >= everything, timeout_s=90)
        assert time.time() * 1000 >= later.deliver_at_ms - 1000
        time.sleep(5)
        assert of_broker(client) == Counter(everything)

"""What waits in a broker's store when a node that follows it takes over, and the way back: messages
that a consumer sent back, delayed ones, half messages. Each comes once, at whoever serves then."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest

import tandemlog
from fakes.stores import records_of
from helpers.running import NodeProcess, wait_until
from interop.jars import VERSION
from interop.live import SIZES, TOPIC, config_of, side_by_side
from interop.store_client import StoreClient, served
from interop.test_following import takeover
from tandemlog.format.record.record import Record
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.services.send_back import send_back

pytestmark = [pytest.mark.interop, pytest.mark.lane("live")]

GROUP, RETRIES = "g", "%RETRY%g"
SOON, LATE, NEXT = 1, 3, 2
"""Levels of 1 s, 10 s, 5 s: it comes at the broker, at the node that takes over (or before, on a
slow machine), at the broker that serves after it."""


def put(client: StoreClient, *keys: str, **more: object) -> None:
    rows = [{"topic": TOPIC, "queue_id": 0, "body": key, "keys": key, **more} for key in keys]
    order = json.dumps({"messages": rows}, separators=(",", ":"))
    assert client.call("put", order)["sent"] == ["SEND_OK"] * len(keys)


def of_broker(client: StoreClient, topic: str) -> Counter[str]:
    return Counter(row["keys"] for row in client.call("pull", topic, 0)["messages"])


def of_node(node: NodeProcess, topic: str, queues: int = 1) -> Counter[str]:
    return Counter(
        record.keys or "" for each in range(queues) for record in node.read_queue(topic, each)
    )


def sent_back_offline(store: Path, *places: tuple[str, int]) -> None:
    """By the code of a node, in its store: the messages (topic, queue offset) of queue 0."""
    opened = MessageStore.open(config_of(store))
    try:
        opened.groups.ensure(GROUP, opened.clock.now_ms())  # as the first consumer does
        for topic, offset in places:
            (found,) = records_of(opened.reader.get(topic, 0, offset, 1, 1 << 20))
            sent = send_back(opened, GROUP, found.physical_offset, delay_level=NEXT)
            assert sent.topic == RETRIES
        opened.flush()
        opened.reput.run_to()
    finally:
        opened.close()


def records_in(store: Path, topic: str) -> list[Record]:
    opened = MessageStore.open(config_of(store))
    try:
        return [*records_of(opened.reader.get(topic, 0, 0, 64, 1 << 20))]
    finally:
        opened.close()


def test_each_comes_once_when_a_follower_takes_over_and_when_a_broker_comes_back(
    tmp_path: Path,
) -> None:
    with side_by_side(tmp_path, VERSION) as pair:
        node = pair.follow()
        client = pair.client
        put(client, "early", "late", "later")
        client.call("transactions", TOPIC, 3)  # committed, rolled back, left open
        client.call("send_back", TOPIC, 0, 0, GROUP, SOON)
        wait_until("the first retry", lambda: of_broker(client, RETRIES) == {"early": 1})
        time.sleep(4)  # it writes what was rolled back up to 3 s later (transactionOpBatchInterval)
        put(client, "delayed", delay=LATE)
        client.call("send_back", TOPIC, 0, 1, GROUP, LATE)
        pair.caught_up()
        pair.broker.kill()

        done = takeover(node.endpoint)
        assert done.returncode == 0, done.stderr
        wait_until(
            lambda: f"the retry that was due, {of_node(node, RETRIES)}",
            lambda: of_node(node, RETRIES) == {"early": 1, "late": 1},
            60,
        )
        retry = node.read_queue(RETRIES, 0)[1]
        assert (retry.reconsume_times, retry.properties["RETRY_TOPIC"]) == (1, TOPIC)
        wait_until("the delayed one", lambda: of_node(node, TOPIC, 4)["delayed"] == 1, 60)
        with tandemlog.Admin(node.endpoint) as admin:
            (left,) = admin.transactions()
            admin.decide_transaction(left.transaction_id, commit=True)
            assert admin.transactions() == []
        messages = of_node(node, TOPIC, 4)
        assert max(messages.values()) == 1
        assert len(messages) == 6, messages  # three puts, the delayed one, two transactions
        assert node.stop() == 0

    # what the node sent back is served on by a broker: a first retry, and a second one
    sent_back_offline(node.store, (TOPIC, 2), (RETRIES, 1))
    with served(node.store, SIZES, tmp_path / "back", TOPIC) as (_, client):
        wanted = {"early": 1, "late": 2, "later": 1}
        wait_until(
            lambda: f"the retries of the node, {of_broker(client, RETRIES)}",
            lambda: of_broker(client, RETRIES) == wanted,
            90,
        )
    again = records_in(node.store, RETRIES)
    assert Counter(f"{each.keys} {each.reconsume_times}" for each in again) == {
        "early 1": 1,
        "late 1": 1,
        "later 1": 1,
        "late 2": 1,
    }

"""Transactions that a real broker and a node take over from each other, in both directions.

What one of them has decided the other one does not open again; what one has left open the other one
decides, once.
"""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tandemlog
from helpers.running import Running, free_ports, wait_until
from interop.rocketmq import StoreSizes, write_topics
from interop.store_client import StoreClient, served
from tandemlog import Message, Producer, ProducerOptions
from tandemlog.format.constants import UNDECIDED_TOPIC

pytestmark = pytest.mark.interop

SIZES = StoreSizes(
    commit_log_file_size=262_144, queue_file_size=4_000, index_slots=200, index_entries=800
)
TOPIC = "Orders"


def node_on(folder: Path, store: Path, broker_port: int) -> Running:
    settings = {
        "commit_log_file_size": SIZES.commit_log_file_size,
        "queue_file_size": SIZES.queue_file_size,
        "index_slots": SIZES.index_slots,
        "index_entries": SIZES.index_entries,
        "store_host": f"127.0.0.1:{broker_port}",
    }
    return Running(folder, flush="sync", store=settings, master_store=store)


def bodies(endpoint: str) -> list[bytes]:
    with (
        tandemlog.Consumer(endpoint) as consumer,
        consumer.follow(TOPIC, until_end=True) as stream,
    ):
        return sorted(message.body for message in stream)


def their_bodies(client: StoreClient, topic: str) -> int:
    return len(client.call("pull", topic, 0)["messages"])


def open_ones(endpoint: str) -> list[str]:
    with tandemlog.Admin(endpoint) as admin:
        return [each.transaction_id for each in admin.transactions()]


def our_transactions(producer: Producer) -> None:
    """Two that are committed, with three messages; one rolled back; one that stays open."""
    with producer.transaction(Message(TOPIC, b"one")):
        pass
    producer.transaction(Message(TOPIC, b"open")).__enter__()
    with producer.transaction([Message(TOPIC, b"two"), Message(TOPIC, b"three")]):
        pass
    with producer.transaction(Message(TOPIC, b"never")) as t:
        t.rollback()


def test_what_was_decided_is_not_opened_again_and_the_rest_is_decided_once(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_topics(store, {TOPIC: 1})
    (port,) = free_ports(1)
    with node_on(tmp_path / "a", store, port) as running:
        with Producer(running.master.endpoint, ProducerOptions(linger_ms=0)) as producer:
            our_transactions(producer)
        time.sleep(1.5)  # the offsets for a broker are noted twice a second
        assert running.master.stop() == 0

    checks: dict[str, Any] = {"transactionCheckInterval": 1_000, "transactionTimeOut": 1_000}
    with served(
        store, SIZES, tmp_path / "b1", TOPIC, listenPort=port, transactionCheckMax=2, **checks
    ) as (_, client):
        # the one that is open is given up; any other that it opened would be too, in the same round
        wait_until(
            "the broker gives up what is open", lambda: their_bodies(client, UNDECIDED_TOPIC) >= 1
        )
        time.sleep(3)
        assert their_bodies(client, UNDECIDED_TOPIC) == 1
        assert their_bodies(client, TOPIC) == 3

    with served(store, SIZES, tmp_path / "b2", TOPIC, listenPort=port) as (broker, client):
        client.call("transactions", TOPIC, 9)  # in turn committed, rolled back, left open
        wait_until("the broker has committed", lambda: their_bodies(client, TOPIC) == 6)
        time.sleep(4)  # it writes what was rolled back up to 3 s later (transactionOpBatchInterval)
        broker.kill()

    with node_on(tmp_path / "c", store, port) as running:
        endpoint = running.master.endpoint
        wait_until(
            lambda: f"the node to know what is open, now {open_ones(endpoint)}",
            lambda: len(open_ones(endpoint)) == 3,
        )
        assert len(bodies(endpoint)) == 6
        left = open_ones(endpoint)
        with tandemlog.Admin(endpoint) as admin:
            admin.decide_transaction(left[0], commit=True)
            admin.decide_transaction(left[1], commit=False)
            admin.decide_transaction(left[2], commit=True)
        assert open_ones(endpoint) == []
        found = bodies(endpoint)
        assert len(found) == 8
        assert max(Counter(found).values()) == 1
        time.sleep(1.5)
        assert running.master.stop() == 0

    with served(
        store, SIZES, tmp_path / "b3", TOPIC, listenPort=port, transactionCheckMax=1, **checks
    ) as (_, client):
        time.sleep(5)
        assert their_bodies(client, UNDECIDED_TOPIC) == 1, "nothing is opened again"
        assert their_bodies(client, TOPIC) == 8

"""A real RocketMQ broker and tandemlog take turns on one store, clean and after kill -9.

Everything that either side acknowledged must be served by the other: by offset, by key, by message
id and by time. A broker refuses to start, or serves nothing, where one byte of layout is off.
"""

import hashlib
from collections.abc import Set
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tandemlog
from helpers.running import NodeProcess, Running, free_ports, wait_until
from interop.rocketmq import StoreSizes, write_topics
from interop.store_client import StoreClient, dump, served
from tandemlog import Message
from tandemlog.format.files.index_layout import HEADER_SIZE, decode_index_header
from tandemlog.format.record.message_id import decode_offset_id
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.verify import verify

pytestmark = pytest.mark.interop

SIZES = StoreSizes(
    commit_log_file_size=262_144, queue_file_size=4_000, index_slots=200, index_entries=800
)
STORE_SETTINGS: dict[str, Any] = {
    "commit_log_file_size": SIZES.commit_log_file_size,
    "queue_file_size": SIZES.queue_file_size,
    "index_slots": SIZES.index_slots,
    "index_entries": SIZES.index_entries,
}
TOPICS = {"Orders": 3, "Audit-1": 1}

Seen = dict[tuple[str, int, int], tuple[str, str, str]]
"""(topic, queue id, queue offset) -> (offset message id, keys, digest of the body)."""


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def node_on(folder: Path, store: Path, broker_port: int) -> Running:
    """A node that writes the broker's address into its records: RocketMQ's client looks a message
    id up at the address that the id names."""
    settings = {**STORE_SETTINGS, "store_host": f"127.0.0.1:{broker_port}"}
    return Running(folder, flush="sync", store=settings, master_store=store)


def produce(endpoint: str, count: int, prefix: str) -> Seen:
    """Messages over all queues; what the answers say of them."""
    futures = []
    with tandemlog.Producer(endpoint) as producer:
        for number in range(count):
            topic = "Orders" if number % 4 else "Audit-1"
            body = f"{prefix} body {number} ".encode() * (1 + number % 40)
            message = Message(
                topic,
                body,
                keys=f"{prefix}-{number}",
                tags=("pay", "标签", "")[number % 3],
                properties={"n": str(number)},
                queue_id=number % TOPICS[topic],
            )
            futures.append((message, producer.send(message)))
        seen: Seen = {}
        for message, future in futures:
            result = future.result(60)
            place = (result.topic, result.queue_id, result.queue_offset)
            seen[place] = (result.msg_id, str(message.keys), digest(message.body))
    return seen


def served_by(node: NodeProcess) -> Seen:
    return {
        (record.topic, record.queue_id, record.queue_offset): (
            record.msg_id,
            record.keys or "",
            digest(record.body),
        )
        for topic, queues in TOPICS.items()
        for queue_id in range(queues)
        for record in node.read_queue(topic, queue_id)
    }


def row_place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["queue_id"], row["queue_offset"]


def row_content(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["offset_msg_id"], row.get("keys") or "", row["sha256"]


def found_by_key(client: StoreClient, topic: str, keys: str) -> list[tuple[str, int, int]]:
    return [row_place(row) for row in client.call("key", topic, keys)["messages"]]


def is_found_as(
    client: StoreClient, topic: str, keys: str, allowed: list[list[tuple[str, int, int]]]
) -> bool:
    return found_by_key(client, topic, keys) in allowed


def ends_of_index(store: Path) -> set[int]:
    """The records (log offsets) at which the index files of a killed process end. A broker that
    keeps such a file puts that record into its index again: it skips what lies below the end of its
    newest file, and not the record at the end (`IndexService.buildIndex`)."""
    ends = set()
    for path in (store / "index").iterdir():
        header = decode_index_header(path.read_bytes()[:HEADER_SIZE])
        if header.next_entry > 1:
            ends.add(header.end_physical_offset)
    return ends


def check_broker(
    client: StoreClient, expected: Seen, ends_of_index: Set[int] = frozenset()
) -> None:
    """RocketMQ's own client sees every message of `expected` in every way there is. Those at
    `ends_of_index` it may find twice by key, all others once."""
    rows = [
        row
        for topic, queues in TOPICS.items()
        for queue_id in range(queues)
        for row in client.call("pull", topic, queue_id)["messages"]
    ]
    found = {row_place(row): row_content(row) for row in rows}
    assert found == expected
    times = {row_place(row): row["store_timestamp"] for row in rows}
    for place in sorted(expected)[:: max(1, len(expected) // 25)]:
        message_id, keys, body = expected[place]
        topic, queue_id, queue_offset = place
        once = [place]
        log_offset = decode_offset_id(message_id)[1]
        allowed = [once, once * 2] if log_offset in ends_of_index else [once]
        # a broker dispatches to the queues first, and to its index a moment later
        wait_until(
            f"the broker's index gives {keys} of {topic} as {place} alone",
            partial(is_found_as, client, topic, keys, allowed),
        )
        by_id = client.call("view", topic, message_id)["message"]
        assert row_content(by_id) == (message_id, keys, body)
        same_time = [
            offset
            for (t, q, offset), time in times.items()
            if (t, q) == (topic, queue_id) and time == times[place]
        ]
        by_time = client.call("search", topic, queue_id, times[place])
        assert by_time["lower"] == min(same_time)
        assert by_time["upper"] == max(same_time)
        assert by_time["lower"] <= queue_offset <= by_time["upper"]


def broker_sends(client: StoreClient, prefix: str) -> Seen:
    added: Seen = {}
    for topic, queues in TOPICS.items():
        for queue_id in range(queues):
            rows = client.call("send", topic, queue_id, 20, f"{prefix}-{queue_id}")["sent"]
            assert {row["status"] for row in rows} == {"SEND_OK"}
            for number, row in enumerate(rows):
                body = digest(f"{prefix}-{queue_id}-body-{number}".encode())
                place = topic, queue_id, row["queue_offset"]
                added[place] = row["offset_msg_id"], row["key"], body
    return added


def check_node(node: NodeProcess, expected: Seen) -> None:
    wait_until("the node to serve everything", lambda: len(served_by(node)) >= len(expected))
    assert served_by(node) == expected
    with tandemlog.Admin(node.endpoint) as admin:
        for place in sorted(expected)[:: max(1, len(expected) // 25)]:
            message_id, keys, _ = expected[place]
            by_key = admin.query_by_key(place[0], keys)
            assert [(m.topic, m.queue_id, m.queue_offset) for m in by_key] == [place]
            by_id = admin.query_by_id(message_id, place[0])
            assert by_id is not None
            assert by_id.keys == [keys]


def check_store(store: Path) -> None:
    report = verify(StoreConfig(store, **STORE_SETTINGS))
    assert not report.faults, report.faults


def test_both_take_turns_with_clean_stops(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_topics(store, TOPICS)
    (port,) = free_ports(1)
    with node_on(tmp_path / "a", store, port) as running:
        expected = produce(running.master.endpoint, 1_500, "first")
        check_node(running.master, expected)
        assert running.master.stop() == 0
    check_store(store)
    assert not (store / "abort").exists()

    with served(store, SIZES, tmp_path / "broker", "Orders", listenPort=port) as (_, client):
        check_broker(client, expected)
        expected |= broker_sends(client, "theirs")

    with node_on(tmp_path / "b", store, port) as running:
        check_node(running.master, expected)
        expected |= produce(running.master.endpoint, 300, "second")
        check_node(running.master, expected)
        assert running.master.stop() == 0
    check_store(store)

    rows = dump(store, "messages", tmp_path / "dump", SIZES.index_slots)
    assert {row_place(row) for row in rows if row["topic"] in TOPICS} == set(expected)


def test_both_take_turns_after_kill(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_topics(store, TOPICS)
    (port,) = free_ports(1)
    with node_on(tmp_path / "a", store, port) as running:
        expected = produce(running.master.endpoint, 1_200, "first")
        wait_until("the first entries of the index", lambda: any((store / "index").glob("*")))
        running.master.kill()
    assert (store / "abort").exists()
    ends = ends_of_index(store)

    with served(
        store, SIZES, tmp_path / "broker", "Orders", flushDiskType="SYNC_FLUSH", listenPort=port
    ) as (
        broker,
        client,
    ):
        check_broker(client, expected, ends)
        expected |= broker_sends(client, "theirs")
        broker.kill()
    assert (store / "abort").exists()

    with node_on(tmp_path / "b", store, port) as running:
        check_node(running.master, expected)
        expected |= produce(running.master.endpoint, 300, "second")
        check_node(running.master, expected)
        running.master.kill()
    ends |= ends_of_index(store)

    with served(store, SIZES, tmp_path / "broker2", "Orders", listenPort=port) as (_, client):
        check_broker(client, expected, ends)

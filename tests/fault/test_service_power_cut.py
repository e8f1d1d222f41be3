"""A power cut just after the node has acknowledged something else than a message.

The disk loses whatever was not flushed, all of it: so what is there afterwards was durable when the
call returned. Each case is a generator: it ends a call, the power goes, and it looks again.
"""

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.running import NodeProcess, Running, wait_until
from helpers.simulated_disk.disk import SimulatedDisk
from helpers.simulated_disk.write_cache import ODDS
from tandemlog import Admin, Consumer, Message, Producer

pytestmark = [pytest.mark.fault, pytest.mark.fuse]

Case = Callable[[NodeProcess], Iterator[None]]
TAKES_ALL = next(seed for seed in range(100) if random.Random(seed).choice(ODDS) == 0.0)
DELAY = timedelta(seconds=3)


def a_topic(node: NodeProcess) -> Iterator[None]:
    with Admin(node.endpoint) as admin:
        admin.create_topic("made", queues=3)
        yield
    with Admin(node.endpoint) as admin:
        assert "made" in {topic.name for topic in admin.topics()}


def a_topic_that_was_deleted(node: NodeProcess) -> Iterator[None]:
    with Admin(node.endpoint) as admin:
        admin.delete_topic("made")
        yield
    with Admin(node.endpoint) as admin:
        assert "made" not in {topic.name for topic in admin.topics()}


def the_first_commit_of_a_group(node: NodeProcess) -> Iterator[None]:
    with Consumer(node.endpoint, group="readers") as consumer:
        consumer.commit({("sales", 0): 3})
        yield
    assert committed(node) == 3


def a_commit_that_moves_back(node: NodeProcess) -> Iterator[None]:
    with Consumer(node.endpoint, group="readers") as consumer:
        consumer.commit({("sales", 0): 4})
        consumer.commit({("sales", 0): 1})
        yield
    assert committed(node) == 1


def committed(node: NodeProcess) -> int | None:
    with Admin(node.endpoint) as admin:
        return admin.committed("readers").get(("sales", 0))


def a_transaction(node: NodeProcess) -> Iterator[None]:
    with Producer(node.endpoint) as producer:
        with producer.transaction() as transaction:
            transaction.send(Message("sales", b"one", queue_id=1))
            transaction.send(Message("sales", b"two", queue_id=1))
        yield
    wait_until("both", lambda: bodies(node, 1) == [b"one", b"two"])


def a_delayed_message(node: NodeProcess) -> Iterator[None]:
    with Producer(node.endpoint) as producer:
        producer.send(Message("sales", b"later", queue_id=2), delay=DELAY).result(60)
        yield
    wait_until("it to come", lambda: bodies(node, 2) == [b"later"])


def a_job_that_is_done(node: NodeProcess) -> Iterator[None]:
    with Producer(node.endpoint) as producer:
        for each in (b"first", b"second"):
            producer.send(Message("jobs", each)).result(60)
    with Consumer(node.endpoint) as consumer, consumer.work("jobs", group="printers") as work:
        delivery = work.poll(30_000)
        assert delivery is not None
        done = delivery.message.body
        delivery.ack(sync=True)
        yield
    with Consumer(node.endpoint) as consumer, consumer.work("jobs", group="printers") as work:
        delivery = work.poll(60_000)
        assert delivery is not None
        assert {done, delivery.message.body} == {b"first", b"second"}
        delivery.ack(sync=True)


def bodies(node: NodeProcess, queue_id: int) -> list[bytes]:
    return [record.body for record in node.read_queue("sales", queue_id)]


CASES: tuple[Case, ...] = (
    a_topic,
    a_topic_that_was_deleted,
    the_first_commit_of_a_group,
    a_commit_that_moves_back,
    a_transaction,
    a_delayed_message,
    a_job_that_is_done,
)


def test_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path, 128)
    store = disk.mount / "store"
    running = Running(tmp_path, flush="sync", replication="sync", master_store=store)
    try:
        with running:
            node = running.master
            with Admin(node.endpoint) as admin:
                admin.create_topic("sales", queues=3)
                admin.create_topic("jobs", queues=1)
            with Producer(node.endpoint) as producer:
                for number in range(5):
                    producer.send(Message("sales", b"%d" % number, queue_id=0)).result(60)
            for case in CASES:
                course = case(node)
                next(course)
                disk.cut_power(TAKES_ALL)
                node.kill()
                disk.restore_power()
                node.start()
                assert next(course, "the end") == "the end", case.__name__
            assert len(bodies(node, 0)) == 5
            assert node.stop() == 0
    finally:
        disk.close()

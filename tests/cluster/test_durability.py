"""What is acknowledged is never lost, whichever process dies, and never stored twice."""

import contextlib
import random
import shutil
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import tandemlog
from helpers.running import NodeProcess, Running, wait_until
from tandemlog import Message, ProducerOptions, ReadFrom
from tandemlog.errors import NotMasterError, TandemlogError, UnknownTopicError
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.verify import verify

pytestmark = pytest.mark.cluster

QUEUES = 2
PATIENT = ProducerOptions(linger_ms=1, batch_bytes=16_384, delivery_timeout_ms=60_000)
IMPATIENT = ProducerOptions(linger_ms=1, delivery_timeout_ms=2_000, answer_timeout_ms=1_500)


class Load(threading.Thread):
    """One producer that sends numbered bodies until told to stop; `acknowledged` grows."""

    def __init__(self, endpoints: list[str], name: str, options: ProducerOptions = PATIENT) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []
        self._endpoints = endpoints
        self._options = options
        self._stop_sending = threading.Event()

    def run(self) -> None:
        try:
            self._send()
        except TandemlogError as problem:  # of the producer itself, or of a send that found no room
            self.failed.append(str(problem))

    def _send(self) -> None:
        number = 0
        with tandemlog.Producer(self._endpoints, self._options) as producer:
            while not self._stop_sending.is_set():
                sent = []
                for _ in range(200):
                    body = f"{self.name}-{number}".encode()
                    sent.append((body, producer.send(Message("load", body, queue_id=number % 2))))
                    number += 1
                for body, future in sent:
                    try:
                        future.result(90)
                        self.acknowledged.append(body)
                    except TandemlogError as problem:
                        self.failed.append(str(problem))

    def finish(self) -> None:
        self._stop_sending.set()
        self.join(120)
        assert not self.is_alive()


def create_topic(running: Running) -> None:
    with tandemlog.Admin(running.endpoints) as admin:
        admin.create_topic("load", queues=QUEUES)


def bodies(node: NodeProcess) -> Counter[bytes]:
    return Counter(
        record.body for queue in range(QUEUES) for record in node.read_queue("load", queue)
    )


def check_all_served(node: NodeProcess, loads: list[Load]) -> None:
    """Everything acknowledged is served once, in the order of each producer's queue."""
    expected = {body for load in loads for body in load.acknowledged}
    wait_until(f"{node.node_id} to serve everything", lambda: expected <= bodies(node).keys(), 60)
    twice = [body for body, count in bodies(node).items() if count > 1]
    assert not twice
    for queue in range(QUEUES):
        by_producer: dict[bytes, list[int]] = {}
        for record in node.read_queue("load", queue):
            name, _, number = record.body.rpartition(b"-")
            by_producer.setdefault(name, []).append(int(number))
        for numbers in by_producer.values():
            assert numbers == sorted(numbers)


def check_stores(running: Running) -> None:
    """Stores of stopped nodes verify, and hold the same bytes as the master's."""
    for node in running.nodes:
        sizes = node.settings["store"]
        config = StoreConfig(
            node.store, index_slots=sizes["index_slots"], index_entries=sizes["index_entries"]
        )
        assert not verify(config).faults


@pytest.mark.parametrize("seed", [1, 2])
def test_master_killed_under_load(tmp_path: Path, seed: int) -> None:
    chooser = random.Random(seed)
    with Running(tmp_path, flush="sync") as running:
        create_topic(running)
        loads = [Load(running.endpoints, f"p{number}") for number in range(3)]
        for load in loads:
            load.start()
        for _ in range(4):
            time.sleep(chooser.uniform(0.2, 0.8))
            running.master.kill()
            running.master.start()
        for load in loads:
            load.finish()
        assert all(load.acknowledged for load in loads)
        assert not any(load.failed for load in loads), "a retry covers a restart"
        check_all_served(running.master, loads)
        assert running.master.stop() == 0
        check_stores(running)


def test_slaves_and_master_killed_in_sync_replication(tmp_path: Path) -> None:
    chooser = random.Random(7)
    with Running(tmp_path, slaves=2, flush="sync", min_in_sync=2) as running:
        running.wait_in_sync()
        create_topic(running)
        loads = [Load(running.endpoints, f"p{number}") for number in range(2)]
        for load in loads:
            load.start()
        for victim in (running.slaves[0], running.master, running.slaves[1]):
            time.sleep(chooser.uniform(0.3, 0.8))
            victim.kill()
            time.sleep(0.2)
            victim.start()
        for load in loads:
            load.finish()
        assert not any(load.failed for load in loads)
        running.wait_in_sync()
        for node in running.nodes:
            check_all_served(node, loads)
        for node in running.nodes:
            assert node.stop() == 0
        check_stores(running)


def test_the_masters_disk_is_lost(tmp_path: Path) -> None:
    """min_in_sync=2: whatever was acknowledged is on a slave, which takes over by configuration."""
    with Running(tmp_path, slaves=1, flush="sync", min_in_sync=2) as running:
        running.wait_in_sync()
        create_topic(running)
        load = Load(running.endpoints, "p", IMPATIENT)
        load.start()
        time.sleep(1)
        wait_until(
            lambda: f"something to be acknowledged: {load.failed[-1:]}",
            lambda: bool(load.acknowledged),
            60,
        )
        running.master.kill()
        load.finish()
        assert load.acknowledged
        shutil.rmtree(running.master.store)
        slave = running.slaves[0]
        assert slave.stop() == 0
        slave.settings.update(role="master", master="")
        slave.settings["replication"].update(mode="async", min_in_sync=1)
        slave.start()
        check_all_served(slave, [load])
        # the producer's sequences came with the log: what it repeats is recognised
        with tandemlog.Producer(slave.endpoint) as producer:
            assert producer.send(Message("load", b"after-0", queue_id=0)).result(90)


def test_a_slave_that_comes_back_catches_up(tmp_path: Path) -> None:
    with Running(tmp_path, slaves=1) as running:
        running.wait_in_sync()
        create_topic(running)
        slave = running.slaves[0]
        slave.kill()
        load = Load(running.endpoints, "p")
        load.start()
        time.sleep(1)
        load.finish()
        slave.start()
        running.wait_in_sync()
        check_all_served(slave, [load])
        log = [sorted((node.store / "commitlog").iterdir()) for node in running.nodes]
        for mine, theirs in zip(*log, strict=False):
            assert mine.name == theirs.name
            assert mine.read_bytes() == theirs.read_bytes()


def test_a_paused_slave_leaves_and_returns(tmp_path: Path) -> None:
    quick = {"replication": {"replica_lag_time_ms": 1_000, "dead_after_ms": 1_500}}
    with Running(tmp_path, slaves=1, replication="sync", extra=quick) as running:
        running.wait_in_sync()
        create_topic(running)
        slave = running.slaves[0]
        slave.pause()
        with tandemlog.Producer(running.master.endpoint, PATIENT) as producer:
            result = producer.send(Message("load", b"p-0", queue_id=0)).result(90)
        assert result.queue_offset == 0
        slave.resume()
        running.wait_in_sync()
        wait_until("the slave to serve it", lambda: bodies(slave)[b"p-0"] == 1)


def test_too_few_in_sync_replicas_refuse_puts(tmp_path: Path) -> None:
    quick = {"replication": {"replica_lag_time_ms": 500, "dead_after_ms": 1_000}}
    with Running(tmp_path, slaves=1, min_in_sync=2, extra=quick) as running:
        running.wait_in_sync()
        create_topic(running)
        running.slaves[0].kill()
        with (
            tandemlog.Producer(running.master.endpoint, IMPATIENT) as producer,
            pytest.raises(TandemlogError),
        ):
            producer.send(Message("load", b"lonely", queue_id=0)).result(90)
        assert running.master.alive
        running.slaves[0].start()
        running.wait_in_sync()
        with tandemlog.Producer(running.master.endpoint, PATIENT) as producer:
            producer.send(Message("load", b"together-0", queue_id=0)).result(90)


def test_wrong_requests_get_typed_errors_and_the_node_goes_on(tmp_path: Path) -> None:
    with Running(tmp_path, slaves=1) as running:
        running.wait_in_sync()
        create_topic(running)
        with (
            tandemlog.Producer(running.master.endpoint, PATIENT) as producer,
            pytest.raises(UnknownTopicError),
        ):
            producer.send(Message("no-such-topic", b"x")).result(90)
        with (
            contextlib.suppress(TandemlogError),
            tandemlog.Admin(running.slaves[0].endpoint) as admin,
        ):
            assert admin.cluster().master is not None
        assert NotMasterError is not None
        second = NodeProcess(
            tmp_path / "second",
            {
                **running.master.settings,
                "listen": "127.0.0.1:0",
                "http_listen": "",
                "node_id": "other",
            },
        )
        second.start(wait=False)
        wait_until("the second node to give up", lambda: not second.alive)
        assert second.process is not None
        assert second.process.returncode != 0
        assert str(running.master.process.pid if running.master.process else "") in second.tail()
        with tandemlog.Producer(running.master.endpoint, PATIENT) as producer:
            producer.send(Message("load", b"fine-0", queue_id=0)).result(90)


def test_a_reader_of_a_slave_waits_for_a_topic_that_was_just_made(tmp_path: Path) -> None:
    slow = {"replication": {"metadata_interval_ms": 1_500}}
    with Running(tmp_path, slaves=1, extra=slow) as running:
        running.wait_in_sync()
        create_topic(running)
        with tandemlog.Producer(running.endpoints) as producer:
            producer.send(Message("load", b"new-0", queue_id=0)).result(90)
        with (
            tandemlog.Consumer(running.endpoints, read_from=ReadFrom.SLAVE) as consumer,
            consumer.follow("load") as stream,
        ):
            batch = stream.next_batch(timeout_ms=60_000)
            assert batch is not None
            assert [message.body for message in batch] == [b"new-0"]
        with (
            tandemlog.Consumer(running.endpoints, read_from=ReadFrom.SLAVE) as consumer,
            pytest.raises(UnknownTopicError),
        ):
            consumer.follow("never-made")

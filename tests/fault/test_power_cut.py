"""A power cut under a real node, whose store is on a disk that loses what was not flushed.

The cut is below a real ext4 (helpers/simulated_disk/disk.py). What the node has acknowledged must
be there, however short before the cut.
"""

import contextlib
import os
import random
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

import tandemlog
from helpers.running import SMALL, NodeProcess, Running, wait_until
from helpers.simulated_disk.disk import SimulatedDisk
from tandemlog import Message, ProducerOptions, SendResult
from tandemlog.errors import TandemlogError
from tandemlog.format.constants import PAGE
from tandemlog.format.files.names import offset_file_name
from tandemlog.format.record.record import Record
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.verify import verify

pytestmark = [pytest.mark.fault, pytest.mark.fuse]

CUTS = int(os.environ.get("POWER_CUTS", "4"))
QUEUES = 2
Acknowledged = dict[tuple[int, int], bytes]
OPTIONS = ProducerOptions(linger_ms=1, batch_bytes=4_096)
HASTY = replace(OPTIONS, delivery_timeout_ms=2_000, answer_timeout_ms=1_000, max_block_ms=2_000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SimulatedDisk]:
    made = SimulatedDisk(tmp_path, 256)
    yield made
    made.close()


def produce_until_cut(node: NodeProcess, disk: SimulatedDisk, seed: int) -> Acknowledged:
    """Send until the power goes in the middle; what was acknowledged, before the cut or after."""
    rng = random.Random(seed)
    futures: dict[bytes, Future[SendResult]] = {}
    with contextlib.suppress(TandemlogError), tandemlog.Producer(node.endpoint, HASTY) as producer:
        for number in range(5_000):
            body = b"%d-%d-" % (seed, number) + b"x" * rng.randrange(200)
            futures[body] = producer.send(Message("cut", body, queue_id=number % QUEUES))
        sent = list(futures.values())
        wait_until("some to be on the disk", sent[rng.randrange(4_000)].done)
        disk.cut_power(seed)  # under the others
        node.kill()
    return acknowledged_of(futures)


def cut_the_start(node: NodeProcess, disk: SimulatedDisk, seed: int) -> None:
    """The power goes again while the node recovers, or just after."""
    enough = disk.counts()["writes"] + random.Random(seed).randrange(40)
    node.start(wait=False)

    def under_way() -> bool:
        return disk.counts()["writes"] >= enough or node.status() is not None

    wait_until("the start to write", under_way, 60)
    disk.cut_power(seed)
    node.kill()
    disk.restore_power()


def acknowledged_of(futures: dict[bytes, Future[SendResult]]) -> Acknowledged:
    ended = {body: future for body, future in futures.items() if future.done()}
    results = {body: each.result() for body, each in ended.items() if each.exception() is None}
    return {(each.queue_id, each.queue_offset): body for body, each in results.items()}


def test_nothing_acknowledged_in_sync_flush_is_lost(tmp_path: Path, disk: SimulatedDisk) -> None:
    acknowledged, served = Acknowledged(), Acknowledged()
    with Running(tmp_path, flush="sync", master_store=disk.mount / "store") as running:
        node = running.master
        with tandemlog.Admin(node.endpoint) as admin:
            admin.create_topic("cut", queues=QUEUES)
        for seed in range(CUTS):
            latest = produce_until_cut(node, disk, seed)
            assert latest, "nothing was acknowledged before the cut"
            acknowledged |= latest
            disk.restore_power()
            if seed % 2:
                cut_the_start(node, disk, seed)
            node.start()
            served = held_by(node)
            # not two dicts compared: of thousands that differ pytest would make a picture, for
            # minutes
            lost = [each for each in acknowledged.items() if served.get(each[0]) != each[1]]
            assert not lost, f"{len(lost)} of {len(acknowledged)}, the first ones {lost[:5]}"
            assert len(set(served.values())) == len(served), "a message is stored twice"
        assert node.stop() == 0
    assert faults_of(node) == []
    print(f"{CUTS} cuts, {len(acknowledged)} acknowledged, all there; {len(served)} stored")


def held_by(node: NodeProcess) -> Acknowledged:
    return {
        (queue_id, record.queue_offset): record.body
        for queue_id in range(QUEUES)
        for record in node.read_queue("cut", queue_id)
    }


def faults_of(node: NodeProcess) -> list[str]:
    """What `verify` says of the node's store, which is closed."""
    sizes = node.settings["store"]
    config = StoreConfig(
        node.store, index_slots=sizes["index_slots"], index_entries=sizes["index_entries"]
    )
    return [str(fault) for fault in verify(config).faults]


PATIENT = ProducerOptions(linger_ms=1, delivery_timeout_ms=20_000, answer_timeout_ms=15_000)


def send(endpoint: str, bodies: list[bytes], options: ProducerOptions = PATIENT) -> list[bytes]:
    """Those that were acknowledged."""
    taken = []
    with contextlib.suppress(TandemlogError), tandemlog.Producer(endpoint, options) as producer:
        for body in bodies:
            producer.send(Message("eio", body, queue_id=0)).result(60)
            taken.append(body)
    return taken


def newest(node: NodeProcess, count: int) -> Record:
    """The last of `count` messages: an acknowledged one is read only when it is dispatched."""
    wait_until("dispatch", lambda: len(node.read_queue("eio", 0)) == count)
    return node.read_queue("eio", 0)[-1]


def test_a_disk_that_did_not_write_is_not_believed_in_the_same_boot(
    tmp_path: Path, disk: SimulatedDisk
) -> None:
    """ext4 keeps pages that it could not write, and calls them clean: a node that read them would
    acknowledge behind bytes which the next power cut takes away."""
    store = disk.mount / "store"
    with Running(tmp_path, flush="sync", master_store=store) as running:
        node = running.master
        with tandemlog.Admin(node.endpoint) as admin:
            admin.create_topic("eio", queues=1)
        held = send(node.endpoint, [b"before %d" % each for each in range(20)])
        last = newest(node, len(held))
        page = (last.physical_offset + last.size) // PAGE * PAGE
        log = store / "commitlog" / offset_file_name(0)
        disk.fail(log, page, SMALL["commit_log_file_size"], "write")
        taken = send(node.endpoint, [b"%d" % each + b"x" * 60_000 for each in range(10)], HASTY)
        assert taken == [], "the disk took it"
        node.kill()
        disk.heal()
        node.start()
        after = send(node.endpoint, [b"after %d" % each for each in range(20)])
        assert len(after) == 20
        disk.cut_power(seed=0)
        node.kill()
        disk.restore_power()
        node.start()
        served = {record.body for record in node.read_queue("eio", 0)}
        assert node.stop() == 0
    assert faults_of(node) == [], "a hole where the disk had not written"
    lost = [body for body in held + after if body not in served]
    assert not lost, f"{len(lost)} of {len(held + after)}, the first ones {lost[:5]}"

"""A disk that fails in one place, or is slow, under a running node (helpers/simulated_disk)."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tandemlog
from helpers.running import SMALL, NodeProcess, Running, wait_until
from helpers.simulated_disk.device import Flushes
from helpers.simulated_disk.disk import SimulatedDisk
from tandemlog import Message, ProducerOptions
from tandemlog.errors import TandemlogError
from tandemlog.format.constants import PAGE
from tandemlog.format.files.names import offset_file_name

pytestmark = [pytest.mark.fault, pytest.mark.fuse]

# longer than a machine that others share may stand still
QUICK = ProducerOptions(
    delivery_timeout_ms=20_000, answer_timeout_ms=15_000, max_block_ms=20_000, linger_ms=1
)
HASTY = replace(QUICK, delivery_timeout_ms=3_000, answer_timeout_ms=2_000)
"""Where no answer comes any more."""
TOPIC = "disk"
BODIES = [b"%d " % number + b"x" * 100_000 for number in range(30)]  # three log files


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SimulatedDisk]:
    made = SimulatedDisk(tmp_path, 128)
    yield made
    made.close()


@pytest.fixture
def node(tmp_path: Path, disk: SimulatedDisk) -> Iterator[NodeProcess]:
    """One with its store on the disk; topic disk has one queue."""
    with Running(tmp_path, flush="sync", master_store=disk.mount / "store") as running:
        create(running)
        yield running.master


def create(running: Running) -> None:
    with tandemlog.Admin(running.master.endpoint) as admin:
        admin.create_topic(TOPIC, queues=1)


def send(node: NodeProcess, bodies: list[bytes]) -> None:
    with tandemlog.Producer(node.endpoint, QUICK) as producer:
        for future in [producer.send(Message(TOPIC, body, queue_id=0)) for body in bodies]:
            future.result(60)


def held_by(node: NodeProcess) -> list[bytes]:
    return [record.body for record in node.read_queue(TOPIC, 0)]


def forget_pages(file: Path) -> None:
    """Those that no process has mapped: they are read from the disk again."""
    handle = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def test_messages_on_a_bad_place_come_from_another_node(
    tmp_path: Path, disk: SimulatedDisk
) -> None:
    """Without the scrub, which would mend it: see test_bad_place_mended.py."""
    store, off = disk.mount / "store", {"scrub": {"on": False}}
    running = Running(
        tmp_path, slaves=1, flush="sync", min_in_sync=2, master_store=store, extra=off
    )
    with running:
        create(running)
        master = running.master
        send(master, BODIES)
        running.wait_in_sync()
        place = master.read_queue(TOPIC, 0)[3].physical_offset // PAGE * PAGE + 2 * PAGE
        assert master.stop() == 0
        log = store / "commitlog" / offset_file_name(0)
        disk.fail(log, place, place + PAGE, "read")
        forget_pages(log)
        master.start()

        with tandemlog.Consumer(running.endpoints) as consumer:
            stream = consumer.follow(TOPIC, start="earliest", until_end=True)
            with stream:
                assert [message.body for message in stream] == BODIES
        wait_until("it to name the place", lambda: "cannot be read" in described(master))
        send(master, [b"more"])

        disk.heal()
        wait_until("it to read the place", lambda: held_by(master) == [*BODIES, b"more"])
        wait_until("it to take its word back", lambda: "cannot be read" not in described(master))


def described(node: NodeProcess) -> str:
    status = node.status()
    assert status is not None, "a bad place ended the process"
    return " ".join(status.faults)


def test_a_failed_fsync_ends_acknowledgements_permanently(
    node: NodeProcess, disk: SimulatedDisk
) -> None:
    send(node, BODIES[:3])
    wait_until("dispatch", lambda: held_by(node) == BODIES[:3])
    last = node.read_queue(TOPIC, 0)[-1]
    page = (last.physical_offset + last.size) // PAGE * PAGE
    log = node.store / "commitlog" / offset_file_name(0)
    disk.fail(log, page, SMALL["commit_log_file_size"], "write")
    assert refusal(node, b"after")
    # the disk is well again; the store must stay read-only all the same
    disk.heal()
    assert refusal(node, b"later"), "a second fsync that succeeds proves nothing"
    wait_until(
        "it to say that it is no master to put to",
        lambda: 503 in (node.http_status("/readiness"), node.http_status("/master")),
    )
    assert held_by(node)[:3] == BODIES[:3]
    node.kill()
    node.start()
    assert refusal(node, b"restarted") == ""


def refusal(node: NodeProcess, body: bytes) -> str:
    """Why a put was not acknowledged; empty where it was."""
    try:
        with tandemlog.Producer(node.endpoint, HASTY) as producer:
            producer.send(Message(TOPIC, body, queue_id=0)).result(60)
    except TandemlogError as problem:
        return str(problem) or type(problem).__name__
    return ""


def test_what_waits_for_a_slow_flush_alone_stands_still(
    node: NodeProcess, disk: SimulatedDisk
) -> None:
    send(node, [b"before"])
    wait_until("it to be read", lambda: held_by(node) == [b"before"])
    # this port opens a moment after the other one
    wait_until("its HTTP port", lambda: node.http_status("/liveness") == 200)
    with tandemlog.Producer(node.endpoint, QUICK) as producer:
        with disk.flushes(Flushes.HELD):
            future = producer.send(Message(TOPIC, b"held", queue_id=0))
            wait_until("the flush", lambda: disk.counts()["waiting"] > 0)
            assert held_by(node) == [b"before"], "what is not flushed is not confirmed"
            assert node.status() is not None
            assert node.http_status("/liveness") == 200
            assert not future.done(), "acknowledged before it was on the disk"
        future.result(60)
    wait_until("it to be read", lambda: held_by(node) == [b"before", b"held"])


@pytest.mark.parametrize("mode", [Flushes.HELD, Flushes.FAILED])
def test_power_goes_after_a_flush_that_was_not_answered(
    node: NodeProcess, disk: SimulatedDisk, mode: Flushes
) -> None:
    """A failed one takes ext4's journal with it: the disk can only be read until it is mounted
    again."""
    bodies = [b"%d" % number for number in range(50)]
    send(node, bodies)
    with tandemlog.Producer(node.endpoint, HASTY) as producer:
        disk.set_flushes(mode)
        future = producer.send(Message(TOPIC, b"never flushed", queue_id=0))
        if mode is Flushes.HELD:
            wait_until("the flush", lambda: disk.counts()["waiting"] > 0)
        else:
            with pytest.raises(TandemlogError):
                future.result(60)
        wait_until("what it had", lambda: held_by(node) == bodies)
        assert not future.done() or future.exception() is not None
        disk.cut_power(seed=1)
        node.kill()
    disk.restore_power()
    node.start()
    send(node, [b"after"])
    wait_until("the last one", lambda: held_by(node)[-1:] == [b"after"])
    assert [body for body in held_by(node) if body != b"never flushed"] == [*bodies, b"after"]

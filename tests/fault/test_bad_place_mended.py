"""A disk that gives a block of the log back no more, under nodes that run: readers lose nothing,
the block comes from another node, and the place is never used again (simulated_disk)."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tandemlog
from helpers.running import SMALL, NodeProcess, Running, wait_until
from helpers.simulated_disk.disk import SimulatedDisk
from tandemlog import ProducerOptions
from tandemlog.cluster.scrub_status import ScrubStatus
from tandemlog.format.constants import PAGE
from tandemlog.format.files.names import offset_file_name

pytestmark = [pytest.mark.fault, pytest.mark.fuse]

TOPIC = "disk"
BODIES = [b"%05d " % number + b"x" * 50_000 for number in range(50)]  # three log files
MEGABYTES = 96
PATIENT = ProducerOptions(delivery_timeout_ms=60_000, answer_timeout_ms=30_000)
MADV_PAGEOUT, SYS_PROCESS_MADVISE = 21, 440


class _Range(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_void_p), ("size", ctypes.c_size_t)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SimulatedDisk]:
    made = SimulatedDisk(tmp_path, MEGABYTES)
    yield made
    made.close()


@pytest.fixture(params=["master", "slave"])
def cluster(
    tmp_path: Path, disk: SimulatedDisk, request: pytest.FixtureRequest
) -> Iterator[tuple[Running, NodeProcess, NodeProcess]]:
    """Two nodes that hold BODIES, one of them on the disk: (cluster, that one, the other one)."""
    running = Running(tmp_path, slaves=1, flush="sync", min_in_sync=2)
    nodes = [running.master, *running.slaves]
    if request.param == "slave":
        nodes.reverse()
    nodes[0].settings["store"]["directory"] = disk.mount / "store"
    with running:
        with tandemlog.Admin(running.endpoints) as admin:
            admin.create_topic(TOPIC, queues=1)
        send(running, BODIES)
        yield running, nodes[0], nodes[1]


def send(running: Running, bodies: list[bytes]) -> None:
    with tandemlog.Producer(running.endpoints, PATIENT) as producer:
        producer.send_many(TOPIC, bodies)
    running.wait_in_sync()


def forget_pages(node: NodeProcess, file: Path) -> None:
    """Also those that the process has mapped: they are read from the disk again."""
    assert node.process is not None
    pid = node.process.pid
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(pid)
    try:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith(f" {file}"):
                begin, end = (int(each, 16) for each in line.split()[0].split("-"))
                there = _Range(begin, end - begin)
                libc.syscall(SYS_PROCESS_MADVISE, handle, ctypes.byref(there), 1, MADV_PAGEOUT, 0)
    finally:
        os.close(handle)
    reader = os.open(file, os.O_RDONLY)
    try:
        os.fsync(reader)
        os.posix_fadvise(reader, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(reader)


def held_by(node: NodeProcess) -> list[bytes]:
    return [record.body for record in node.read_queue(TOPIC, 0)]


def spoil(disk: SimulatedDisk, node: NodeProcess, number: int, *calls: str) -> Path:
    """The disk fails inside message `number`, whose log file is the answer."""
    place = node.read_queue(TOPIC, 0, number)[0].physical_offset // PAGE * PAGE + 2 * PAGE
    size = SMALL["commit_log_file_size"]
    log = node.store / "commitlog" / offset_file_name(place // size * size)
    disk.fail(log, place % size, place % size + PAGE, *calls)
    forget_pages(node, log)
    with pytest.raises(OSError, match="Input/output error"):
        log.read_bytes()
    return log


def scrubbed(running: Running, node: NodeProcess) -> ScrubStatus:
    with tandemlog.Admin(running.endpoints) as admin:
        return admin.scrub_status(node.node_id)


def wait_until_mended(running: Running, node: NodeProcess) -> None:
    wait_until(
        lambda: f"the block to come from the other node: {scrubbed(running, node)}",
        lambda: scrubbed(running, node).mended_blocks == 1,
        60,
    )


@pytest.mark.parametrize("found_by", ["scrub", "pull"])
def test_a_block_comes_from_the_other_node(
    cluster: tuple[Running, NodeProcess, NodeProcess], disk: SimulatedDisk, found_by: str
) -> None:
    running, node, other = cluster
    wait_until("the first round", lambda: scrubbed(running, node).rounds > 0)
    rounds = scrubbed(running, node).rounds
    log = spoil(disk, node, 3, "read", "write")
    if found_by == "scrub":
        with tandemlog.Admin(running.endpoints) as admin:
            admin.begin_scrub(node.node_id)
    else:
        with tandemlog.Consumer(running.endpoints) as consumer:
            stream = consumer.follow(TOPIC, start="earliest", until_end=True)
            with stream:
                assert [message.body for message in stream] == BODIES
        with contextlib.suppress(AssertionError):
            held_by(node)  # refused, unless the block has come already
    wait_until_mended(running, node)
    assert scrubbed(running, node).rounds == rounds or found_by == "scrub"
    assert held_by(node) == BODIES
    assert log.read_bytes() == (other.store / "commitlog" / log.name).read_bytes()
    status = node.status()
    assert status is not None
    assert not status.faults
    assert len(list((node.store / "tandemlog").glob(f"bad-{log.name}-*"))) == 1


def test_a_place_that_also_fails_to_write_is_not_used_again(
    cluster: tuple[Running, NodeProcess, NodeProcess], disk: SimulatedDisk
) -> None:
    """The disk is filled to where a store would stop: no new file gets the bad place."""
    running, node, other = cluster
    spoil(disk, node, 20, "read", "write")
    with tandemlog.Admin(running.endpoints) as admin:
        admin.begin_scrub(node.node_id)
    wait_until_mended(running, node)
    bodies = list(BODIES)
    for round_ in range(13):
        more = [b"%02d%03d" % (round_, number) + b"y" * 100_000 for number in range(40)]
        send(running, more)
        bodies += more
    assert held_by(node) == bodies
    assert node.stop() == 0
    node.start()
    running.wait_in_sync()
    assert held_by(node) == bodies
    assert held_by(other) == bodies

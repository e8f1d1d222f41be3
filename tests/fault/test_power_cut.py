"""A power cut under a real node: an ext4 on a loop device that stops writing from one moment on.

FS_IOC_SHUTDOWN without a log flush ends all I/O of the file system at once, as a power cut does:
what was fsynced stays, dirty pages and unsynced metadata are gone when it is mounted again.

Only what was acknowledged before that call must survive. While it runs, the kernel (6.18; ext4 and
xfs) answers 0 to an fdatasync whose blocks it then forgets: "failed to convert unwritten extents".
A loop of pwrite and fdatasync without any code of ours met that in one of seven cuts.
"""

import contextlib
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

import tandemlog
from helpers.running import NodeProcess, Running, wait_until
from tandemlog import Message, ProducerOptions, SendResult
from tandemlog.errors import TandemlogError
from tandemlog.format.constants import PAGE
from tandemlog.format.record.record import Record
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.tools.verify import verify

pytestmark = pytest.mark.fault

FS_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
NO_LOG_FLUSH = 2


class LoopDisk:
    """An ext4 of `megabytes` in a file, mounted at `mount`."""

    def __init__(self, folder: Path, megabytes: int, *features: str) -> None:
        self.image = folder / "disk.img"
        self.mount = folder / "disk"
        self.mount.mkdir()
        with self.image.open("wb") as image:
            image.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", *features, str(self.image)], check=True)
        self.attach()

    def attach(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.mount)], check=True)

    def cut_power(self) -> None:
        handle = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, FS_IOC_SHUTDOWN, struct.pack("=I", NO_LOG_FLUSH))
        finally:
            os.close(handle)

    def detach(self) -> None:
        # lazily: this process may still have files of it mapped
        subprocess.run(["umount", "-l", str(self.mount)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    made = LoopDisk(tmp_path, 512)
    yield made
    made.detach()


def produce_until_cut(endpoint: str, disk: LoopDisk, prefix: str) -> dict[tuple[int, int], bytes]:
    """Send until the power goes in the middle; the answer is what was acknowledged before."""
    options = ProducerOptions(linger_ms=1, batch_bytes=4_096)
    acknowledged: dict[tuple[int, int], bytes] = {}

    def send(producer: tandemlog.Producer, number: int) -> tuple[bytes, Future[SendResult]]:
        body = f"{prefix}-{number}".encode()
        return body, producer.send(Message("cut", body, queue_id=number % 2))

    with tandemlog.Producer(endpoint, options) as producer:
        for body, future in [send(producer, number) for number in range(10_000)]:
            result = future.result(60)
            acknowledged[result.queue_id, result.queue_offset] = body
    hasty = replace(options, delivery_timeout_ms=20_000, answer_timeout_ms=15_000)
    with contextlib.suppress(TandemlogError), tandemlog.Producer(endpoint, hasty) as producer:
        sent = [send(producer, number) for number in range(10_000, 11_000)]
        wait_until("some to be on the disk", sent[100][1].done)
        for body, future in [each for each in sent if each[1].done()]:
            if future.exception() is not None:
                continue  # nothing is promised of it; the power goes all the same
            result = future.result()
            acknowledged[result.queue_id, result.queue_offset] = body
        disk.cut_power()  # under the others
    return acknowledged


def test_nothing_acknowledged_in_sync_flush_is_lost(tmp_path: Path, disk: LoopDisk) -> None:
    store = disk.mount / "store"
    acknowledged: dict[tuple[int, int], bytes] = {}
    for round_number in range(2):
        with Running(tmp_path / f"r{round_number}", flush="sync", master_store=store) as running:
            if round_number == 0:
                with tandemlog.Admin(running.master.endpoint) as admin:
                    admin.create_topic("cut", queues=2)
            acknowledged |= produce_until_cut(running.master.endpoint, disk, f"round{round_number}")
            running.master.kill()
        disk.detach()
        disk.attach()
        assert len(acknowledged) >= 10_000 * (round_number + 1)

    with Running(tmp_path / "last", flush="sync", master_store=store) as running:
        served = {
            (queue_id, record.queue_offset): record.body
            for queue_id in range(2)
            for record in running.master.read_queue("cut", queue_id)
        }
        assert running.master.stop() == 0
    # not two dicts compared: of thousands that differ pytest would make a picture, for minutes
    lost = [(*place, body) for place, body in acknowledged.items() if served.get(place) != body]
    assert not lost, f"{len(lost)} of {len(acknowledged)}, the first ones {lost[:5]}"
    assert faults_of(running) == []


def faults_of(running: Running) -> list[str]:
    """What `verify` says of the master's store, which is closed."""
    sizes = running.master.settings["store"]
    config = StoreConfig(
        running.master.store,
        index_slots=sizes["index_slots"],
        index_entries=sizes["index_entries"],
    )
    return [str(fault) for fault in verify(config).faults]


@pytest.fixture
def cramped(tmp_path: Path) -> Iterator[Path]:
    """A small tmpfs: a disk image in it cannot be written where it is full."""
    folder = tmp_path / "cramped"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"b" * 4096):
            pass


def send(endpoint: str, bodies: list[bytes]) -> list[bytes]:
    """Those that were acknowledged."""
    options = ProducerOptions(linger_ms=1, delivery_timeout_ms=20_000, answer_timeout_ms=15_000)
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
    tmp_path: Path, cramped: Path
) -> None:
    """ext4 keeps pages that it could not write, and calls them clean: a node that read them would
    acknowledge behind bytes which the next power cut takes away."""
    # without a journal, whose end would have the disk read-only; its blocks are pages of the tmpfs
    disk = LoopDisk(cramped, 256, "-O", "^has_journal", "-b", "4096")
    store = disk.mount / "store"
    try:
        with Running(tmp_path / "r0", flush="sync", master_store=store) as running:
            node = running.master
            with tandemlog.Admin(node.endpoint) as admin:
                admin.create_topic("eio", queues=1)
            held = send(node.endpoint, [b"before %d" % each for each in range(20)])
            # A loop device takes a write that succeeds in part for one that succeeded: so the
            # first one on the full disk begins with a page of its own.
            held += send(node.endpoint, [b"measured"])
            last = newest(node, len(held))
            envelope = last.size - len(last.body)
            pad = -(last.physical_offset + last.size + envelope) % PAGE
            held += send(node.endpoint, [b"p" * pad])
            last = newest(node, len(held))
            assert (last.physical_offset + last.size) % PAGE == 0
            fill(cramped / "ballast")
            filler = [b"%d" % each + b"x" * 60_000 for each in range(10)]
            taken = send(node.endpoint, filler)
            assert not len(taken), "the disk took it"
            node.kill()
        (cramped / "ballast").unlink()
        with Running(tmp_path / "r1", flush="sync", master_store=store) as running:
            after = send(running.master.endpoint, [b"after %d" % each for each in range(20)])
            assert len(after) == 20
            disk.cut_power()
            running.master.kill()
        disk.detach()
        disk.attach()
        with Running(tmp_path / "r2", flush="sync", master_store=store) as running:
            served = {record.body for record in running.master.read_queue("eio", 0)}
            assert running.master.stop() == 0
        assert faults_of(running) == [], "a hole where the disk had not written"
        lost = [body[:20] for body in held + after if body not in served]
        assert not lost, f"{len(lost)} of {len(held + after)}, the first ones {lost[:5]}"
    finally:
        disk.detach()

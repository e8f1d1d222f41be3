"""A power cut under a real node: an ext4 on a loop device that stops writing from one moment on.

FS_IOC_SHUTDOWN without a log flush ends all I/O of the file system at once, as a power cut does:
what was fsynced stays, dirty pages and unsynced metadata are gone when it is mounted again.
"""

import contextlib
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tandemlog
from running import Running
from storage.config import StoreConfig
from storage.tools.verify import verify
from tandemlog import Message, ProducerOptions
from tandemlog.errors import TandemlogError

pytestmark = pytest.mark.fault

FS_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
NO_LOG_FLUSH = 2


class LoopDisk:
    """An ext4 of `megabytes` in a file, mounted at `mount`."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.image = folder / "disk.img"
        self.mount = folder / "disk"
        self.mount.mkdir()
        with self.image.open("wb") as image:
            image.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=True)
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
    acknowledged: dict[tuple[int, int], bytes] = {}
    options = ProducerOptions(
        linger_ms=1, batch_bytes=4_096, delivery_timeout_ms=8_000, answer_timeout_ms=6_000
    )
    waiting = []
    with contextlib.suppress(TandemlogError), tandemlog.Producer(endpoint, options) as producer:
        for number in range(20_000):
            body = f"{prefix}-{number}".encode()
            waiting.append((body, producer.send(Message("cut", body, queue_id=number % 2))))
            if number == 10_000:
                producer.flush()
                disk.cut_power()
    for body, future in waiting:
        with contextlib.suppress(TandemlogError, TimeoutError):
            result = future.result(0.1)
            acknowledged[(result.queue_id, result.queue_offset)] = body
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
    sizes = running.master.settings["store"]
    report = verify(
        StoreConfig(store, index_slots=sizes["index_slots"], index_entries=sizes["index_entries"])
    )
    assert not report.faults

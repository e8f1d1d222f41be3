"""The promise of fdatasync on the simulated disk, without code of the product.

A writer does on ext4 what a store does: it appends to files whose blocks are allocated ahead, and
replaces small files. The power goes while it writes. All that fdatasync and fsync had reported
durable must be there. On a disk that lies the same search finds a loss.
"""

import contextlib
import os
import random
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.running import wait_until
from helpers.simulated_disk.device import Flushes
from helpers.simulated_disk.disk import SimulatedDisk
from helpers.simulated_disk.write_cache import SECTOR, CutCounts

pytestmark = [pytest.mark.fault, pytest.mark.fuse]

CUTS = int(os.environ.get("POWER_CUTS", "12"))
FILE_BYTES = 128 << 10
MOST_RECORD_BYTES = 6_000
SUPERBLOCK = 1_024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SimulatedDisk]:
    made = SimulatedDisk(tmp_path, 64)
    yield made
    made.close()


class Writer:
    """Writes below `folder` in a thread until the disk fails; what is in `log` and `note` was
    reported durable."""

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir()
        sync_folder(folder.parent)
        self.folder = folder
        self.log: dict[int, bytes] = {}
        self.note = 0
        self.records = 0
        self._rng = random.Random(seed)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        with contextlib.suppress(OSError):
            while True:
                self._fill_file(number)
                number += 1

    def _fill_file(self, number: int) -> None:
        handle = os.open(self.folder / f"log-{number}", os.O_RDWR | os.O_CREAT)
        try:
            os.posix_fallocate(handle, 0, FILE_BYTES + MOST_RECORD_BYTES)
            sync_folder(self.folder)
            written = b""
            while len(written) < FILE_BYTES:
                data = self._rng.randbytes(self._rng.randrange(1, MOST_RECORD_BYTES))
                os.pwrite(handle, data, len(written))
                if self._rng.random() < 0.8:
                    os.fdatasync(handle)
                    self.log[number] = written + data
                    self.records += 1
                written += data
                if self._rng.random() < 0.2:
                    self._replace_note()
        finally:
            os.close(handle)

    def _replace_note(self) -> None:
        draft = self.folder / "note.draft"
        with draft.open("wb") as file:
            file.write(b"%d\n" % (self.note + 1) * 1_000)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.folder / "note")
        sync_folder(self.folder)
        self.note += 1


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def losses(writer: Writer) -> list[str]:
    """What was reported durable, and is not there."""
    found = []
    for number, content in writer.log.items():
        file = writer.folder / f"log-{number}"
        have = file.read_bytes()[: len(content)] if file.exists() else b""
        if have != content:
            found.append(f"{len(content)} bytes of {file.name}")
    note = writer.folder / "note"
    lines = set(note.read_bytes().split()) if note.exists() else {b"0"}
    if len(lines) != 1 or int(lines.pop()) < writer.note:
        found.append(f"note {writer.note}")
    return found


def cut_in_the_middle(
    disk: SimulatedDisk, seed: int, flushes: Flushes = Flushes.ANSWERED
) -> tuple[Writer, CutCounts]:
    writer = Writer(disk.mount / f"run-{seed}", seed)
    disk.set_flushes(flushes)
    enough = random.Random(seed).randrange(1, 60)
    wait_until("some to be durable", lambda: writer.records >= enough)
    if (
        seed % 2 and flushes is Flushes.ANSWERED
    ):  # in the middle of a flush: the cache has something
        disk.set_flushes(Flushes.HELD)
        wait_until("a flush", lambda: disk.counts()["waiting"] > 0)
    counts = disk.cut_power(seed)
    writer.join()
    return writer, counts


def test_what_fdatasync_reported_durable_is_there_after_a_cut(disk: SimulatedDisk) -> None:
    lost, records = [], 0
    whole = torn = gone = 0
    for seed in range(CUTS):
        writer, counts = cut_in_the_middle(disk, seed)
        disk.restore_power()
        records += writer.records
        lost += [f"seed {seed}: {each}" for each in losses(writer)]
        whole, torn, gone = whole + counts.whole, torn + counts.torn, gone + counts.lost
    assert not lost, f"{len(lost)} of {records}, the first ones {lost[:5]}"
    assert whole + torn + gone > 0, "the cache was empty at the cuts"
    print(f"{CUTS} cuts, {records} writes reported durable, all there")
    print(f"writes in the disk's cache: {whole} survived, {torn} were torn, {gone} were lost")


def test_a_disk_that_lies_is_found_out(disk: SimulatedDisk) -> None:
    for seed in range(20):
        writer, _ = cut_in_the_middle(disk, seed, Flushes.LIES)
        try:
            disk.restore_power()
        except subprocess.CalledProcessError:
            return  # not even the file system can be mended
        if losses(writer):
            return
    pytest.fail("no loss in 20 cuts")


def test_a_torn_superblock_is_mended(tmp_path: Path) -> None:
    """Of two sectors: a cut may leave one of them old, and ext4 does not mount that."""
    disk = SimulatedDisk(tmp_path, 64)
    try:
        (disk.mount / "file").write_bytes(b"durable")
        sync_folder(disk.mount)
        os.sync()
        disk.cut_power(seed=0)
        with (tmp_path / "disk.img").open("r+b") as image:
            image.seek(SUPERBLOCK + SECTOR)
            image.write(b"torn" * (SECTOR // 4))
        disk.restore_power()
        assert (disk.mount / "file").read_bytes() == b"durable"
    finally:
        disk.close()

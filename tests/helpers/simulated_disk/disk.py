"""A real ext4 on a disk of the tests' own, which loses power as a disk with a write cache does.

    store ── ext4 (mounted at .mount) ── loop device ── FUSE: one file ── server.py ── image file
                                                                             ▲
    SimulatedDisk: cut_power(seed), fail, hold_flushes, ... ─────────────────┘

    disk = SimulatedDisk(folder, 256)
    ...                           # a node that has its store below disk.mount
    disk.cut_power(seed=17)       # from here on every call of the file system fails
    ...                           # kill the processes that use it
    disk.restore_power()          # ext4 recovers from what was durable, and from what a disk may
                                  # have written besides

A machine that has lost its power has booted since, and a store with async flush goes by that: its
page cache did not outlive the cut. So what counts unflushed bytes is started by `machine`, a
command that shows it another boot id after each cut.

The faults are below the file system: its journal, directory entries and unwritten extents are what
they are on a machine. fdatasync has succeeded only if the disk has answered the flush that it is.
"""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.running import wait_until
from helpers.simulated_disk.device import Flushes
from helpers.simulated_disk.extents import places
from helpers.simulated_disk.write_cache import CutCounts

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SimulatedDisk:
    """An ext4 of `megabytes`, mounted at `mount`; `features` are options of mkfs.ext4."""

    def __init__(self, folder: Path, megabytes: int, *features: str) -> None:
        self.mount = folder / "disk"
        self._image = folder / "disk.img"
        self._file_system = folder / "device"
        self._life = 0
        self._powered = True
        self._boot_id = folder / "boot_id"
        self._boot()
        self.mount.mkdir()
        self._file_system.mkdir()
        with self._image.open("wb") as image:
            image.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", *features, str(self._image))
        self._server = self._serve(folder / "device.log")
        try:
            self._attach()
        except BaseException:
            self._end_server()
            raise

    @property
    def machine(self) -> tuple[str, ...]:
        """Before the command of a program: it runs on a machine that booted after the last cut."""
        shown = f'mount --bind "{self._boot_id}" {BOOT_ID} && exec "$@"'
        return ("unshare", "--mount", "--propagation", "slave", "sh", "-c", shown, "sh")

    def cut_power(self, seed: int) -> CutCounts:
        """The disk answers nothing from here on. What was not flushed survives in part (`seed`)."""
        counts = CutCounts(**self._ask("cut", seed=seed))
        self._life += 1
        self._powered = False
        self._boot()
        return counts

    def restore_power(self) -> None:
        """Mount what is on the disk after a cut. Who had files open there has them no more. With
        power it does nothing: one disk mounted twice would be spoiled."""
        if not self._powered:
            self._detach()
            self._attach()
            self._powered = True

    def close(self) -> None:
        if self.mount.is_mount():
            self._detach()
        self._end_server()

    def fail(self, file: Path, start: int, end: int, *calls: str) -> None:
        """`calls` (read, write) of these bytes of `file` answer EIO. The page cache may still
        have them: see `forget_pages`."""
        self._ask(
            "bad",
            ranges=[[call, *place] for call in calls for place in places(file, start, end)],
        )

    def heal(self) -> None:
        self._ask("bad", ranges=[])
        self.set_flushes(Flushes.ANSWERED)

    def set_flushes(self, mode: Flushes, delay_s: float = 0.0) -> None:
        self._ask("flushes", mode=mode.value, delay_s=delay_s)

    @contextlib.contextmanager
    def flushes(self, mode: Flushes, delay_s: float = 0.0) -> Iterator[None]:
        self.set_flushes(mode, delay_s)
        try:
            yield
        finally:
            self.set_flushes(Flushes.ANSWERED)

    def counts(self) -> dict[str, int]:
        """What was asked of the disk; see `Calls`."""
        return dict(self._ask("counts"))

    def _boot(self) -> None:
        self._boot_id.write_text(f"{uuid.uuid4()}\n")

    def _serve(self, log: Path) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "helpers.simulated_disk.server"]
        with log.open("ab") as out:
            server = subprocess.Popen(
                [*command, str(self._image), str(self._file_system)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
            )

        def mounted() -> bool:
            if server.poll() is not None:
                raise AssertionError(f"the simulated disk ended: {log.read_text()[-2_000:]}")
            return self._file_system.is_mount()

        wait_until("the simulated disk", mounted)
        return server

    def _ask(self, command: str, **arguments: Any) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def _attach(self) -> None:
        disk = str(self._file_system / f"disk-{self._life}")
        mount = ("mount", "-o", "loop,errors=remount-ro", disk, str(self.mount))
        try:
            _run(*mount)
        except subprocess.CalledProcessError:
            # As a machine does that starts: ext4's superblock is of two sectors, and may be torn.
            subprocess.run(["e2fsck", "-f", "-y", disk], check=False, capture_output=True)
            _run(*mount)

    def _detach(self) -> None:
        # lazily: this process may still have files of it mapped
        _run("umount", "-l", str(self.mount))

    def _end_server(self) -> None:
        """Whatever the kernel still wants of the disk fails then."""
        self._server.kill()
        self._server.wait(60)
        _run("umount", "-l", str(self._file_system))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)

"""A FUSE file system that shows one file, the disk; a process of its own (see disk.py).

    loop device ──read, write, fsync──▶ disk-<life> ──▶ Device ──▶ image file
    a test      ──a line of JSON on stdin, an answer on stdout──▶ Device

Calls go around the page cache of the FUSE file (direct_io): what loop has not been told to be
durable is in the Device alone. Where it may (CAP_SYS_RESOURCE) the process tells the kernel that it
serves I/O (PR_SET_IO_FLUSHER): an allocation of memory then never waits for the file system above,
which would wait for this process. Elsewhere that takes a machine without free memory.

    python -m helpers.simulated_disk.server IMAGE MOUNT
"""

import ctypes
import errno
import json
import os
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mfusepy

from helpers.simulated_disk.device import BadRange, Device, Flushes, ImageFile

PR_SET_IO_FLUSHER = 57


class DiskFile(mfusepy.Operations):  # type: ignore[misc]
    """The file `disk-<life>`; there is no other, and what has another opened gets EIO."""

    use_ns = True

    def __init__(self, device: Device) -> None:
        self._device = device

    def getattr(self, path: str, fh: Any = None) -> dict[str, Any]:
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
        if path != f"/disk-{self._device.life}":
            raise mfusepy.FuseOSError(errno.ENOENT)
        return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": self._device.size}

    def open(self, path: str, fi: Any) -> int:
        fi.fh = _life(path)
        fi.direct_io = 1
        return 0

    def read(self, path: str, size: int, offset: int, fi: Any) -> bytes:
        return self._device.read(fi.fh, offset, size)

    def write(self, path: str, data: bytes, offset: int, fi: Any) -> int:
        self._device.write(fi.fh, offset, data)
        return len(data)

    def fsync(self, path: str, datasync: int, fi: Any) -> int:
        self._device.flush(fi.fh)
        return 0


def _life(path: str) -> int:
    return int(path.rpartition("-")[2])


def _answers(device: Device) -> dict[str, Callable[..., Any]]:
    def cut(seed: int) -> dict[str, int]:
        return asdict(device.cut_power(seed))

    def flushes(mode: str, delay_s: float) -> None:
        device.set_flushes(Flushes(mode), delay_s)

    def bad(ranges: list[list[Any]]) -> None:
        device.set_bad(BadRange(*each) for each in ranges)

    return {"cut": cut, "flushes": flushes, "bad": bad, "counts": device.counts}


def _obey(device: Device) -> None:
    """Until stdin ends: whoever started this process is gone then."""
    answers = _answers(device)
    for line in sys.stdin:
        request = json.loads(line)
        answer = answers[request.pop("command")](**request)
        print(json.dumps(answer), flush=True)
    os._exit(0)


def main(image: str, mount: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0)  # EPERM in most containers
    device = Device(ImageFile(Path(image)))
    threading.Thread(target=_obey, args=(device,), daemon=True).start()
    mfusepy.FUSE(DiskFile(device), mount, raw_fi=True, foreground=True, fsname="simulated-disk")


if __name__ == "__main__":
    main(*sys.argv[1:])

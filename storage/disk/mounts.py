"""Which mounted file system holds a path: a name that no later mount of the same disk has.

    path ── st_dev ── /sys/dev/block/254:0 ──▶ vda
                      /sys/fs/ext4/vda        made by the kernel when it mounts the disk, gone when
                                              the disk is unmounted, with its page cache
                      its inode number        never given again while the machine runs

A bind mount, a container that starts again and `mount -o remount` keep the name, as they keep the
page cache. ext4, xfs and f2fs on a block device have such a folder, one for each disk; others
(btrfs, overlay, a network's) have none, or none that the device leads to.
"""

import os
from pathlib import Path
from typing import Final

BLOCK_DEVICES: Final = Path("/sys/dev/block")
FILE_SYSTEMS: Final = Path("/sys/fs")


def mounted_as(
    path: Path, *, devices: Path = BLOCK_DEVICES, file_systems: Path = FILE_SYSTEMS
) -> str:
    """Of the file system that holds `path`, or its nearest folder that there is; empty if the
    kernel does not name it."""
    try:
        number = _device_of(path)
        device = (devices / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True).name
        for kind in sorted(file_systems.iterdir()):
            found = kind / device
            if found.is_dir():
                return f"{kind.name} {device} {found.stat().st_ino}"
    except OSError:
        pass
    return ""


def _device_of(path: Path) -> int:
    while True:
        try:
            return path.stat().st_dev
        except (FileNotFoundError, NotADirectoryError):
            if path == path.parent:
                raise
            path = path.parent

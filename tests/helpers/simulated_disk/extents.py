"""Where the bytes of a file are on the disk below its file system: the kernel's FIEMAP."""

import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path

FS_IOC_FIEMAP = 0xC020660B  # _IOWR('f', 11, struct fiemap)
SYNC = 1
HEADER = struct.Struct("=QQLLLL")  # start, length, flags, mapped, count, reserved
EXTENT = struct.Struct("=QQQ2QL3L")  # logical, physical, length, reserved, flags, reserved
MOST = 256


@dataclass(frozen=True, slots=True)
class Extent:
    """`size` bytes of the file from `offset` on are on the disk from `place` on."""

    offset: int
    place: int
    size: int


def extents(file: Path) -> list[Extent]:
    request = bytearray(HEADER.size + MOST * EXTENT.size)
    HEADER.pack_into(request, 0, 0, 2**64 - 1, SYNC, 0, MOST, 0)
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(handle, FS_IOC_FIEMAP, request)
    finally:
        os.close(handle)
    mapped = HEADER.unpack_from(request)[3]
    assert mapped < MOST, f"{file} is in more than {MOST} places"
    found = (EXTENT.unpack_from(request, HEADER.size + at * EXTENT.size) for at in range(mapped))
    return [Extent(*each[:3]) for each in found]


def places(file: Path, start: int, end: int) -> list[tuple[int, int]]:
    """The ranges of the disk that have the bytes from `start` to before `end` of `file`."""
    found = []
    for extent in extents(file):
        first, last = max(start, extent.offset), min(end, extent.offset + extent.size)
        if first < last:
            shift = extent.place - extent.offset
            found.append((first + shift, last + shift))
    assert sum(last - first for first, last in found) == end - start, f"{file} has holes"
    return found

"""One file of a disk in memory: what reads see, and what a loss of power would leave.

pwrite ──▶ data        reads and maps see it at once
      ╰──▶ unsynced ──fdatasync──▶ durable
               ╰──a failed fdatasync──▶ gone, however often the call is repeated
"""

import errno
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

PAGE = 4096


@dataclass(eq=False)
class MemoryFile:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    durable_size: int = 0
    allocated: int = 0
    modified_ms: int = 0
    # a map may have changed any byte, or the file was cut: the journal does not tell all
    copy_whole: bool = False
    # an fdatasync has failed: `data` shows what is not on the disk
    failed: bool = False
    # handles whose next fdatasync tells of a write-back that has failed; with the last of them it
    # is forgotten
    to_be_told: set[int] = field(default_factory=set)
    # (start, end) of bytes that the disk does not give
    bad: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Failure:
    call: str
    number: int
    name: str
    skip: int
    times: int
    took: int  # bytes that a failing pwrite still writes


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data) if view.nbytes else 0


def check_readable(file: MemoryFile, start: int, size: int) -> None:
    for first, last in file.bad:
        if start < last and first < start + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def make_durable(file: MemoryFile) -> None:
    if file.copy_whole:
        file.durable = bytearray(file.data)
    for offset, piece in file.unsynced:
        overlay(file.durable, offset, piece)
    file.unsynced.clear()
    del file.durable[len(file.data) :]
    file.durable_size = len(file.data)


def fail_to_write(file: MemoryFile) -> None:
    file.unsynced.clear()
    file.copy_whole = False
    file.failed = True


def lose(file: MemoryFile, survivors: random.Random | None) -> None:
    kept = bytearray(padded(file.durable, file.durable_size))
    for offset, piece in file.unsynced if survivors is not None else ():
        assert survivors is not None
        fate = survivors.random()
        if fate < 0.4:
            overlay(kept, offset, piece)
        elif fate < 0.7:
            # the disk writes pages: a prefix that ends at a page's end
            end = (offset + survivors.randint(0, len(piece))) // PAGE * PAGE
            overlay(kept, offset, piece[: max(end - offset, 0)])
    # what lies beyond the durable length was never made part of the file
    file.data = bytearray(padded(kept, file.durable_size))
    file.durable = bytearray(file.data)
    file.unsynced = []
    file.allocated = min(file.allocated, file.durable_size)
    file.copy_whole = file.failed = False


def overlay(target: bytearray, offset: int, piece: bytes) -> None:
    if offset > len(target):
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(piece)] = piece


def padded(data: bytearray, size: int) -> bytes:
    return bytes(data[:size]).ljust(size, b"\0")


def resize(file: MemoryFile, size: int) -> None:
    if size == len(file.data):
        return
    try:
        if size < len(file.data):
            del file.data[size:]
            file.copy_whole = True
            file.unsynced = [(at, piece[: max(size - at, 0)]) for at, piece in file.unsynced]
        else:
            file.data.extend(bytes(size - len(file.data)))
    except BufferError:
        raise RuntimeError("the length of a file may not change while it is mapped") from None


def drop_cached(file: MemoryFile) -> None:
    """After a failed fdatasync, let reads show what is on the disk and what was written since."""
    if file.failed:
        held = bytearray(padded(file.durable, len(file.data)))
        for offset, piece in file.unsynced:
            overlay(held, offset, piece)
        file.data[:] = held[: len(file.data)]
        file.failed = False


def folder_and_name(path: Path | str) -> tuple[str, str]:
    folder, _, name = str(path).rpartition("/")
    return folder or "/", name


def os_error(number: int, path: Path | str) -> OSError:
    return OSError(number, os.strerror(number), str(path))

"""Where `put` gets its messages: lines as they come, or whole files."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from ..shared import exit_codes
from ..shared.failures import CommandError

READ_BYTES = 1 << 16
MAX_SIZE = 1 << 30
"""Bytes of a body that is worth reading: no node takes more."""


async def lines_of(file: Path | None) -> AsyncIterator[bytes]:
    """Lines without their newline, LF or CRLF, as they come: a pipe is read while it is written."""
    rest: list[bytes] = []
    async for chunk in _chunks(file):
        *lines, last = chunk.split(b"\n")
        for line in lines:
            rest.append(line)
            yield b"".join(rest).removesuffix(b"\r")
            rest = []
        if last:
            rest.append(last)
    if rest:
        yield b"".join(rest).removesuffix(b"\r")


async def whole(file: Path | None) -> bytes:
    """All bytes of a file or of stdin. Raises CommandError if that is no message any more."""
    pieces, size = [], 0
    async for chunk in _chunks(file):
        pieces.append(chunk)
        size += len(chunk)
        if size > MAX_SIZE:
            raise CommandError(
                f"{file or 'stdin'}: more than {MAX_SIZE} bytes are no message", exit_codes.USAGE
            )
    return b"".join(pieces)


def check_files(files: Sequence[Path]) -> None:
    """Raises CommandError for one that is not there, before anything is sent."""
    for file in files:
        os.close(_opened(str(file)))


async def _chunks(file: Path | None) -> AsyncIterator[bytes]:
    from_stdin = file is None or str(file) == "-"
    descriptor = sys.stdin.fileno() if from_stdin else _opened(str(file))
    try:
        while chunk := await _read(descriptor):
            yield chunk
    finally:
        if not from_stdin:
            os.close(descriptor)


def _opened(file: str) -> int:
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", exit_codes.USAGE) from None
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CommandError(f"{file} is a folder, not a file", exit_codes.USAGE)
    return descriptor


async def _read(descriptor: int) -> bytes:
    """What is there, as soon as something is; a thread that reads could not be interrupted."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        return os.read(descriptor, READ_BYTES)  # a file on a disk can always be read
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, READ_BYTES)

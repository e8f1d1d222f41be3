"""Reading a file of which a page may be unreadable: which page it is, and what the others hold."""

from collections.abc import Iterator
from pathlib import Path

from tandemlog.format.constants import PAGE

from ..disk.file_system import FileSystem
from ..errors import UnreadableError


def read_exactly(files: FileSystem, handle: int, path: Path, position: int, size: int) -> bytes:
    """These bytes of the file. Raises UnreadableError that names the first page that cannot be
    read, or where the file ends before."""
    try:
        data = files.pread(handle, size, position)
    except OSError as error:
        why = str(error.strerror)
        bad = next((at for at, page in pages(files, handle, position, size) if page is None), None)
        at = position if bad is None else bad
        raise UnreadableError(str(path), at, min(PAGE, position + size - at), why) from error
    if len(data) < size:
        missing = size - len(data)
        raise UnreadableError(str(path), position + len(data), missing, "the file ends there")
    return data


def pages(
    files: FileSystem, handle: int, position: int, size: int
) -> Iterator[tuple[int, bytes | None]]:
    """(position, bytes) of each page of a stretch, None for one that cannot be read."""
    at, end = position, position + size
    while at < end:
        length = min(PAGE - at % PAGE, end - at)
        try:
            data = files.pread(handle, length, at)
        except OSError:
            yield at, None
        else:
            yield at, data if len(data) == length else None
        at += length

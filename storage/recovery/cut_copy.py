"""A copy of the bytes that are cut from a log: whole records after a bad one may have been
acknowledged.

`tandemlog/cut-<offset>-<ms>` holds the bytes as they lay in the log from `offset` on.
"""

from pathlib import Path

from ..store_parts import StoreParts

COPY_STEP = 1 << 20


def save_copy(parts: StoreParts, start: int, end: int) -> Path:
    """Keep log bytes start..end, durably; returns its path. Raises OSError."""
    path = _unused(parts, start)
    handle = parts.files.open(path, create=True)
    try:
        position = start
        while position < end:
            piece = parts.log.mapped.view(position, min(COPY_STEP, end - position))
            if not len(piece):
                break
            parts.files.pwrite(handle, piece, position - start)
            position += len(piece)
        parts.files.fdatasync(handle)
    finally:
        parts.files.close(handle)
    parts.files.fsync_directory(path.parent)
    return path


def _unused(parts: StoreParts, start: int) -> Path:
    """A name that no other copy has: the clock may stand still, or have been set back."""
    now_ms = parts.clock.now_ms()
    while parts.files.status(path := parts.paths.own / f"cut-{start}-{now_ms}") is not None:
        now_ms += 1
    return path

"""Small files that are replaced whole: written beside the old one, made durable, renamed.

Who reads the file meanwhile finds the old content or the new one, also after a power failure.
"""

import os
from pathlib import Path

SECRET = 0o600
PUBLIC = 0o644


def write_draft(
    target: Path, content: bytes, mode: int, owner: tuple[int, int] | None = None
) -> Path:
    """A durable file beside `target`, to be renamed to it. `owner`: user and group; None: those of
    this process. Raises OSError."""
    draft = target.with_name(f".{target.name}.new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            if owner not in (None, (os.geteuid(), os.getegid())):
                os.fchown(handle, *owner)
            file.write(content)
            file.flush()
            os.fsync(handle)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(target)) from error
    return draft


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_secret(path: Path, text: str) -> None:
    """One line that only its owner can read, in place of an older file. Raises OSError."""
    write_draft(path, f"{text}\n".encode(), SECRET).replace(path)


def replace_text(path: Path, text: str) -> None:
    """Put `text` in place of a file, with the mode and owner that it had; a new one is readable by
    its owner alone. Raises OSError."""
    mode, owner = SECRET, None
    if path.exists():
        status = path.stat()
        mode, owner = status.st_mode & 0o777, (status.st_uid, status.st_gid)
    write_draft(path, text.encode(), mode, owner).replace(path)

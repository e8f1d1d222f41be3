"""Small files that are read and written whole: tables, the epoch file, the recovery point.

A write goes to a temporary file that is renamed over the old one. Where RocketMQ keeps a `.bak`,
tandemlog does too: the content before the last write, in case the file itself is lost or damaged.
"""

from pathlib import Path

from .file_system import Buffer, FileSystem

BACKUP_SUFFIX = ".bak"


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + BACKUP_SUFFIX)


def read_small(files: FileSystem, path: Path) -> bytes | None:
    """The whole file, None if there is none."""
    return files.read_file(path) if files.status(path) is not None else None


def write_small(files: FileSystem, path: Path, data: Buffer) -> None:
    """Put `data` in place of the file, durable; makes its directory where missing."""
    files.make_directory(path.parent)
    files.atomic_replace(path, data)


def replace_with_backup(
    files: FileSystem, path: Path, data: Buffer, *, keep_backup: bool = False
) -> None:
    """As write_small, and the old content becomes `.bak`; with `keep_backup` the old `.bak` stays,
    because the old content is damaged and `.bak` is the only copy until this returns."""
    files.make_directory(path.parent)
    old = None if keep_backup else read_small(files, path)
    if old:
        files.atomic_replace(backup_of(path), old)
    files.atomic_replace(path, data)


def remove_small(files: FileSystem, path: Path) -> bool:
    """Delete the file, durably; False if there was none."""
    if files.status(path) is None:
        return False
    files.unlink(path)
    files.fsync_directory(path.parent)
    return True

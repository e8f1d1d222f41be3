"""An archive in a folder: of this machine, or one that is mounted.

    put   1. `.<name>.<random>.part` is written and flushed
          2. it gets its name by a hard link: only one of two writers makes it, and no reader sees
             a part of it
          3. the folder is flushed, also where the object was there: the one who put it may have
             died before

A file system without hard links gets a rename in its place, which replaces an object by an equal
one.
"""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .errors import ArchiveDamagedError, ArchiveUnavailableError, ObjectMissingError
from .object_store import StoredObject, check_key

PART: Final = ".part"
STALE_PART_S: Final = 3600.0
PIECE_BYTES: Final = 1 << 20
"""Of one write: with all of an object at once, ext4 takes several times the processor time."""
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FolderStore:
    """See the module. `folder` and those above it are created with the first object."""

    def __init__(self, folder: Path, *, now_s: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now_s = now_s
        self._cleaned: set[Path] = set()

    @property
    def url(self) -> str:
        return str(self._folder)

    def put(self, key: str, content: bytes | memoryview) -> bool:
        path = self._path(key)
        try:
            self._make_folder(path.parent)
            if path.exists():
                created = False
            else:
                self._remove_stale_parts(path.parent)
                created = self._create(path, content)
            size = path.stat().st_size
            _flush_folder(path.parent)
        except OSError as error:
            raise self._unavailable("write", path, error) from error
        if size != len(content):
            raise ArchiveDamagedError(
                f"{path} has {size} bytes, and would have {len(content)}: move it away"
            )
        return created

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        path = self._path(key)
        try:
            with path.open("rb") as file:
                file.seek(start)
                return file.read() if end is None else file.read(max(0, end - start))
        except FileNotFoundError:
            raise ObjectMissingError(f"{path} is not there") from None
        except OSError as error:
            raise self._unavailable("read", path, error) from error

    def get_into(self, key: str, start: int, target: memoryview) -> int:
        """As `get`, into memory of the caller's: how many bytes there were."""
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(start)
                done = 0
                while done < len(target) and (count := file.readinto(target[done:])):
                    done += count
                return done
        except FileNotFoundError:
            raise ObjectMissingError(f"{path} is not there") from None
        except OSError as error:
            raise self._unavailable("read", path, error) from error

    def list(self, prefix: str) -> list[StoredObject]:
        folder = self._path(f"{prefix.rstrip('/')}/0").parent
        found: list[StoredObject] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue
                    modified_ms = status.st_mtime_ns // 1_000_000
                    key = f"{folder.name}/{entry.name}"
                    found.append(StoredObject(key, status.st_size, modified_ms))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unavailable("list", folder, error) from error
        return sorted(found, key=lambda each: each.key)

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unavailable("delete", path, error) from error

    def close(self) -> None:
        """Nothing is open between two calls."""

    def _path(self, key: str) -> Path:
        return self._folder / check_key(key)

    def _create(self, path: Path, content: bytes | memoryview) -> bool:
        part = path.with_name(f".{path.name[:100]}.{os.urandom(8).hex()}{PART}")
        try:
            with part.open("xb", buffering=0) as file:
                view = memoryview(content)
                while view:
                    view = view[file.write(view[:PIECE_BYTES]) :]
                os.fsync(file.fileno())
            try:
                os.link(part, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                part.rename(path)
            return True
        finally:
            part.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        missing = [folder, *folder.parents]
        above = next(index for index, each in enumerate(missing) if each.is_dir())
        folder.mkdir(parents=True, exist_ok=True)
        for each in missing[1 : above + 1]:
            _flush_folder(each)

    def _remove_stale_parts(self, folder: Path) -> None:
        """Those of writers that died; once for each process."""
        if folder in self._cleaned:
            return
        self._cleaned.add(folder)
        for part in folder.glob(f".*{PART}"):
            try:
                if self._now_s() - part.stat().st_mtime > STALE_PART_S:
                    part.unlink()
            except FileNotFoundError:
                continue

    def _unavailable(self, what: str, path: Path, error: OSError) -> ArchiveUnavailableError:
        reason = error.strerror or type(error).__name__
        return ArchiveUnavailableError(f"cannot {what} {path}: {reason}", reason=reason)


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

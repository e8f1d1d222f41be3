"""An archive in an object store, or any place that fsspec knows: s3://, gs://, abfs://, hdfs://.

Object stores show an object when it is whole. Where a file is seen while it is written (hdfs://,
sftp://), it is written under another name and moved.

No create-only put is common to these stores, and none is needed: two writers of one name write the
same bytes. An object that is there is not put again, unless it has another size.
"""

import os
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

from ..lazy import load
from .errors import (
    ArchiveDamagedError,
    ArchiveUnavailableError,
    ArchiveUrlError,
    ObjectMissingError,
)
from .object_store import StoredObject, check_key, shown_url

WHOLE_OR_NOT: Final = frozenset(
    ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "oci", "r2", "memory")
)
"""Protocols whose objects are never seen in part."""
_PARTS: Final = "parts"

Answer = TypeVar("Answer")


class FsspecStore:
    """See the module. `options` go to fsspec's file system (endpoint, credentials).

    Raises ArchiveUrlError if fsspec, or its package for this protocol, is not installed, and
    ArchiveUnavailableError where that cannot connect."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url = shown_url(url)
        protocol = url.partition("://")[0]
        try:
            core = load("fsspec.core")
            options = {"use_listings_cache": False, "skip_instance_cache": True, **options}
            self._files, root = core.url_to_fs(url, **options)
        except ImportError as error:
            raise ArchiveUrlError(
                f"an archive at {protocol}:// needs a package that is not installed: {error} "
                f"(pip install 'tandemlog[archive]', and fsspec's package for {protocol}://)"
            ) from error
        except ValueError as error:
            raise ArchiveUrlError(f"{self._url} is no URL of an archive: {error}") from error
        except Exception as error:
            # hdfs:// connects at once, with errors of its own
            reason = f"{type(error).__name__}: {shown_url(str(error)[:300])}"
            raise ArchiveUnavailableError(
                f"cannot open {self._url}: {reason}", reason=reason
            ) from error
        self._root = root.rstrip("/")
        self._moves = protocol not in WHOLE_OR_NOT

    @property
    def url(self) -> str:
        return self._url

    def put(self, key: str, content: bytes | memoryview) -> bool:
        path = self._path(key)
        size = self._asked("look for", key, lambda: self._size(path))
        if size is None:
            self._asked("write", key, lambda: self._written(path, bytes(content)))
            return True
        if size != len(content):
            raise ArchiveDamagedError(
                f"{key} of {self._url} has {size} bytes, and would have {len(content)}: "
                "move it away"
            )
        return False

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        path = self._path(key)
        if end is not None and end <= start:
            return b""
        return self._asked("read", key, lambda: self._read(path, start, end))

    def list(self, prefix: str) -> list[StoredObject]:
        folder = self._path(f"{prefix.rstrip('/')}/0").rpartition("/")[0]
        name = prefix.rstrip("/")
        rows = self._asked("list", prefix, lambda: self._find(folder))
        found = [
            StoredObject(f"{name}/{path.rpartition('/')[2]}", int(row["size"] or 0), _modified(row))
            for path, row in rows.items()
            if row.get("type") != "directory"
        ]
        return sorted(found, key=lambda each: each.key)

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            self._asked("delete", key, lambda: self._files.rm_file(path))
        except ObjectMissingError:
            return

    def close(self) -> None:
        """fsspec closes its sessions by itself."""

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _size(self, path: str) -> int | None:
        try:
            return int(self._files.info(path)["size"])
        except FileNotFoundError:
            return None

    def _written(self, path: str, content: bytes) -> None:
        try:
            self._write(path, content)
        except FileNotFoundError as error:
            raise OSError(f"the bucket or folder does not exist: {error}") from error

    def _write(self, path: str, content: bytes) -> None:
        if not self._moves:
            self._files.pipe_file(path, content)
            return
        part = f"{self._root}/{_PARTS}/{os.urandom(16).hex()}"
        for each in (part, path):
            self._files.makedirs(each.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(part, content)
        self._files.mv(part, path)

    def _read(self, path: str, start: int, end: int | None) -> bytes:
        """Some file systems answer a range that begins behind the end with an error."""
        try:
            return bytes(self._files.cat_file(path, start=start, end=end))
        except FileNotFoundError:
            raise
        except Exception:
            size = self._size(path)
            if size is not None and start >= size:
                return b""
            raise

    def _find(self, folder: str) -> dict[str, dict[str, Any]]:
        self._files.invalidate_cache()
        try:
            found: dict[str, dict[str, Any]] = self._files.find(folder, detail=True)
        except FileNotFoundError:
            return {}
        return found

    def _asked(self, what: str, key: str, call: Callable[[], Answer]) -> Answer:
        """Every package has errors of its own: whatever it is, it is tried again later."""
        try:
            return call()
        except FileNotFoundError:
            raise ObjectMissingError(f"{key} is not in {self._url}") from None
        except Exception as error:
            reason = f"{type(error).__name__}: {shown_url(str(error)[:300])}"
            raise ArchiveUnavailableError(
                f"cannot {what} {key} in {self._url}: {reason}", reason=reason
            ) from error


def _modified(row: dict[str, Any]) -> int:
    for name in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = row.get(name)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value * 1000)
    return 0

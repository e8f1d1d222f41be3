"""The object store that a URL names."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .errors import ArchiveUrlError
from .folder_store import FolderStore
from .fsspec_store import FsspecStore
from .object_store import ObjectStore, shown_url


def open_object_store(url: str, **options: Any) -> ObjectStore:
    """A folder for a path and for file:, else what fsspec has for the URL; `options` go there.

    Nothing is read yet. Raises ArchiveUrlError, ArchiveUnavailableError."""
    if not url:
        raise ArchiveUrlError("an archive needs a URL: a folder, s3://, gs://, hdfs://")
    if "://" not in url and not url.startswith("file:"):
        return FolderStore(Path(url))
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise ArchiveUrlError(f"{shown_url(url)} is no folder of this machine")
        return FolderStore(Path(unquote(parts.path)))
    return FsspecStore(url, **options)

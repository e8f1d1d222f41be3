"""What an archive needs of the place where its objects are.

    put     create only: an object is there whole or not at all, and never changes
    get     a range of bytes
    list    the names under a prefix; one that was put a moment ago may be missing
    delete  of what no manifest names any more

A put that failed may have been done, may be done later, or twice. Since the name of an object says
its content, none of that does harm: putting it again is right, and finding it there is success.
"""

import re
from dataclasses import dataclass
from typing import Final, Protocol

_KEY: Final = re.compile(r"[a-z]+/[0-9a-f-]+", re.ASCII)
_SECRETS: Final = re.compile(r"(?<=://)[^/@]*@")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """`size` in bytes; `modified_ms` by the store's clock, 0 if it does not say."""

    key: str
    size: int
    modified_ms: int = 0


class ObjectStore(Protocol):
    """See the module. Safe to use from several threads. Every call may raise
    ArchiveUnavailableError."""

    @property
    def url(self) -> str:
        """For people: without user name and password."""
        ...

    def put(self, key: str, content: bytes | memoryview) -> bool:
        """Returns when the object is durable: True if this call created it, False if it was there.
        Raises ArchiveDamagedError if one of another size has that name."""
        ...

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from `start` up to `end`, fewer if the object is shorter; None: to its end.
        Raises ObjectMissingError."""
        ...

    def list(self, prefix: str) -> list[StoredObject]:
        """All objects under `prefix`, such as `manifests/`, by name."""
        ...

    def delete(self, key: str) -> None:
        """An object that is not there is no error."""
        ...

    def close(self) -> None:
        """Nothing may be called afterwards."""
        ...


def check_key(key: str) -> str:
    """Raises ValueError for what is no name of an object: a folder and a name, nothing else, so
    that no key leads out of the archive."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key[:200]!r} is no name of an object of an archive")
    return key


def shown_url(url: str) -> str:
    """A URL without user name, password and query: as messages, logs and settings show it."""
    return _SECRETS.sub("***@", url.partition("?")[0])

"""An object store in memory that answers as object stores on a bad day do.

refused    not done, and an error
lost       done, and an error in place of the answer
late       an error now, done in some later call
repeated   done now, and once more in some later call, whatever happened to the object since
lag        a list lacks what was put a moment ago
"""

import random
from dataclasses import dataclass, fields

from tandemlog.archive.errors import (
    ArchiveDamagedError,
    ArchiveUnavailableError,
    ObjectMissingError,
)
from tandemlog.archive.object_store import StoredObject, check_key


@dataclass(frozen=True)
class Trouble:
    """Out of 1: how often each happens; see the module."""

    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    repeated: float = 0.0
    lag: float = 0.0

    def __post_init__(self) -> None:
        assert all(0 <= getattr(self, each.name) <= 1 for each in fields(self))


BAD_DAY = Trouble(refused=0.05, lost=0.05, late=0.05, repeated=0.05, lag=0.1)


class FakeObjectStore:
    """See the module. `objects` and `calls` are for tests to read."""

    def __init__(self, trouble: Trouble | None = None, seed: int = 0) -> None:
        self.trouble = trouble or Trouble()
        self.objects: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.moved = 0
        self.now_ms = 1_000
        self._modified: dict[str, int] = {}
        self._waiting: list[tuple[str, bytes | None]] = []
        self._recent: list[str] = []
        self._random = random.Random(seed)

    @property
    def url(self) -> str:
        return "fake://archive"

    def put(self, key: str, content: bytes | memoryview) -> bool:
        self._begin("put", key)
        present = self.objects.get(key)
        if present is not None and len(present) != len(content):
            raise ArchiveDamagedError(f"{key} has {len(present)} bytes, not {len(content)}")
        self._change(key, bytes(content))
        return present is None

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        self._begin("get", key)
        if self._happens(self.trouble.refused):
            raise ArchiveUnavailableError(f"no answer for {key}")
        if key not in self.objects:
            raise ObjectMissingError(f"{key} is not there")
        return self.objects[key][start:end]

    def list(self, prefix: str) -> list[StoredObject]:
        self._begin("list", prefix)
        if self._happens(self.trouble.refused):
            raise ArchiveUnavailableError(f"no answer for {prefix}")
        missing = set(self._recent) if self._happens(self.trouble.lag) else set()
        return [
            StoredObject(key, len(self.objects[key]), self._modified[key])
            for key in sorted(self.objects)
            if key.startswith(prefix) and key not in missing
        ]

    def delete(self, key: str) -> None:
        self._begin("delete", key)
        self._change(key, None)

    def close(self) -> None:
        self.calls.append(("close", ""))

    def settle(self) -> None:
        """What waits is done now."""
        while self._waiting:
            self._apply(*self._waiting.pop(0))

    def _begin(self, call: str, key: str) -> None:
        check_key(key if call != "list" else f"{key.rstrip('/')}/0")
        self.calls.append((call, key))
        while self._waiting and self._happens(0.2):
            self._apply(*self._waiting.pop(self._random.randrange(len(self._waiting))))

    def _change(self, key: str, content: bytes | None) -> None:
        if self._happens(self.trouble.refused):
            raise ArchiveUnavailableError(f"no answer for {key}")
        if self._happens(self.trouble.late):
            self._waiting.append((key, content))
            raise ArchiveUnavailableError(f"no answer for {key} yet")
        self._apply(key, content)
        if self._happens(self.trouble.repeated):
            self._waiting.append((key, content))
        if self._happens(self.trouble.lost):
            raise ArchiveUnavailableError(f"the answer for {key} was lost")

    def _apply(self, key: str, content: bytes | None) -> None:
        if content is None:
            self.objects.pop(key, None)
            return
        self.moved += len(content)
        self.objects.setdefault(key, content)
        self._modified[key] = self.now_ms
        self._recent = [*self._recent[-2:], key]

    def _happens(self, often: float) -> bool:
        return often > 0 and self._random.random() < often

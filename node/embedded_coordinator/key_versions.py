"""Every version of every key since the last compaction. Pure.

    chains   key ──▶ [row, row, row]      the newest one is what the key is now
    log      [row, row, …]                all rows above `compacted`, as they were made

A row is one put, or one deletion: then its version is 0 and it has no value. Its place is
(revision, sub): a transaction makes several rows of one revision. Compaction at C forgets what
no client can ask for from then on: rows up to C that a later row up to C replaced, and deletions
up to C. What is left of a key is its version at C, so the present and all after C stay readable.

    rows of k    put@3   put@5   delete@8        compact(6)   put@5  delete@8
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

_revision = attrgetter("revision")
EVERYTHING = b"\0"
"""As the end of a range: there is none."""


@dataclass(frozen=True, slots=True)
class Row:
    """See the module."""

    revision: int
    sub: int
    key: bytes
    value: bytes
    create_revision: int
    version: int
    lease: int

    @property
    def deleted(self) -> bool:
        return self.version == 0

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key) + len(self.value)


def in_range(key: bytes, start: bytes, end: bytes) -> bool:
    """Whether `key` is in a range, as etcd writes ranges (coordinator.proto)."""
    if not end:
        return key == start
    return start <= key and (end == EVERYTHING or key < end)


class KeyVersions:
    """See the module. The first revision is 1, of an empty store, as etcd's is."""

    def __init__(self, revision: int = 1, compacted: int = 0) -> None:
        self.revision = revision
        self.compacted = compacted
        self.log: list[Row] = []
        self.log_bytes = 0
        self.live = 0
        self.live_bytes = 0
        self._chains: dict[bytes, list[Row]] = {}
        self._names: list[bytes] = []

    def add(self, row: Row) -> None:
        """The newest version of its key; rows come in the order of their places."""
        chain = self._chains.get(row.key)
        if chain is None:
            chain = self._chains[row.key] = []
            insort(self._names, row.key)
        elif not chain[-1].deleted:
            self._count(chain[-1], -1)
        chain.append(row)
        if not row.deleted:
            self._count(row, 1)
        if row.revision > self.compacted:
            self.log.append(row)
            self.log_bytes += row.size
        self.revision = max(self.revision, row.revision)

    def now(self, key: bytes) -> Row | None:
        """What the key is; None where it is absent."""
        chain = self._chains.get(key)
        return None if chain is None or chain[-1].deleted else chain[-1]

    def at(self, key: bytes, revision: int) -> Row | None:
        """What the key was at `revision`, which is not below `compacted`."""
        chain = self._chains.get(key, [])
        number = bisect_right(chain, revision, key=_revision)
        return None if not number or chain[number - 1].deleted else chain[number - 1]

    def width(self, start: bytes, end: bytes) -> int:
        """How many keys `range` goes through at most."""
        first, last = self._bounds(start, end) if end else (0, 1)
        return last - first

    def range(self, start: bytes, end: bytes, revision: int = 0) -> list[Row]:
        """Keys of a range in order, as they are, or as they were at `revision`."""
        if not end:
            names = [start]
        else:
            first, last = self._bounds(start, end)
            names = self._names[first:last]
        rows = (self.at(name, revision) if revision else self.now(name) for name in names)
        return [row for row in rows if row is not None]

    def before(self, row: Row) -> Row | None:
        """What the key was before `row`; None where it was absent, or that is compacted."""
        chain = self._chains.get(row.key, [])
        number = bisect_left(
            chain, (row.revision, row.sub), key=lambda each: (each.revision, each.sub)
        )
        return None if not number or chain[number - 1].deleted else chain[number - 1]

    def events(self, first: int, last: int) -> Iterator[Row]:
        """Rows of the revisions first..last, both included, all of them above `compacted`."""
        for number in range(bisect_left(self.log, first, key=_revision), len(self.log)):
            if self.log[number].revision > last:
                return
            yield self.log[number]

    def compact(self, revision: int) -> list[Row]:
        """Compact at `revision`, which is above `compacted`; the rows that are gone."""
        self.compacted = revision
        cut = bisect_right(self.log, revision, key=_revision)
        touched = {row.key for row in self.log[:cut]}
        self.log_bytes -= sum(row.size for row in self.log[:cut])
        del self.log[:cut]
        removed: list[Row] = []
        for key in sorted(touched):
            removed += self._shortened(key, revision)
        return removed

    def _bounds(self, start: bytes, end: bytes) -> tuple[int, int]:
        first = bisect_left(self._names, start)
        last = len(self._names) if end == EVERYTHING else bisect_left(self._names, end)
        return first, max(first, last)

    def _shortened(self, key: bytes, revision: int) -> list[Row]:
        chain = self._chains[key]
        kept_from = bisect_right(chain, revision, key=_revision) - 1
        if chain[kept_from].deleted:
            kept_from += 1
        removed = chain[:kept_from]
        del chain[:kept_from]
        if not chain:
            del self._chains[key]
            del self._names[bisect_left(self._names, key)]
        return removed

    def _count(self, row: Row, number: int) -> None:
        self.live += number
        self.live_bytes += number * row.size

"""An archive as its newest manifest has it: bytes of the log, indexes and tables, all checked.

    manifest ─▶ segments ─▶ index ─▶ whole blocks of the object, each with its checksum

What a manifest names is there: objects are written before it, and deleted an hour after the last
manifest that names them. A reader that is older than that finds an object missing, and looks for
the newest manifest again (`refresh`).
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from ..format.archive.branches import newest_first
from ..format.archive.manifest import Manifest, SegmentEntry, StateEntry, decode_manifest
from ..format.archive.object_name import MANIFESTS, ManifestName, digest_of
from ..format.archive.segment_index import SegmentIndex, cut_index, decode_index
from ..format.archive.state import ArchiveState, decode_state
from ..format.errors import FormatError
from .errors import ArchiveDamagedError, NotArchivedError, ObjectMissingError
from .folder_store import FolderStore
from .object_store import ObjectStore

INDEXES_KEPT: Final = 16


def newest_manifest(store: ObjectStore) -> tuple[ManifestName, Manifest] | None:
    """The manifest that counts; None if the archive is empty.

    One that was deleted meanwhile is skipped: there is a newer one then. Raises
    ArchiveDamagedError for one with other content than its name says: an older manifest in its
    place would hide a part of the log."""
    for _ in range(3):
        names = newest_first(each.key for each in store.list(MANIFESTS))
        if not names:
            return None
        try:
            return names[0], load_manifest(store, names[0])
        except ObjectMissingError:
            continue
    raise ObjectMissingError(f"the manifests that {store.url} lists are not there")


def load_manifest(store: ObjectStore, name: ManifestName) -> Manifest:
    """Raises ObjectMissingError, ArchiveDamagedError."""
    try:
        return decode_manifest(name, store.get(name.key))
    except FormatError as error:
        raise ArchiveDamagedError(f"{store.url}: {error}") from error


class ArchiveReader:
    """See the module. Safe to use from several threads.

    `manifest` is the one that was opened: another than the newest for a log of before."""

    def __init__(self, store: ObjectStore, manifest: Manifest) -> None:
        self.store = store
        self.manifest = manifest
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, SegmentIndex] = OrderedDict()

    @classmethod
    def open(cls, store: ObjectStore) -> "ArchiveReader":
        """With the newest manifest. Raises NotArchivedError if there is none."""
        found = newest_manifest(store)
        if found is None:
            raise NotArchivedError(f"{store.url} has no manifest: nothing is archived there")
        return cls(store, found[1])

    def refresh(self) -> Manifest:
        """The newest manifest, from now on."""
        found = newest_manifest(self.store)
        if found is not None:
            self.manifest = found[1]
        return self.manifest

    def index(self, entry: SegmentEntry) -> SegmentIndex:
        """Of the part of the segment that the log has."""
        key = entry.name.index_key
        with self._lock:
            found = self._indexes.get(key)
            if found is not None:
                self._indexes.move_to_end(key)
        if found is None:
            try:
                found = decode_index(entry.name, self.store.get(key))
            except FormatError as error:
                raise ArchiveDamagedError(f"{self.store.url}: {error}") from error
            with self._lock:
                self._indexes[key] = found
                while len(self._indexes) > INDEXES_KEPT:
                    self._indexes.popitem(last=False)
        return cut_index(found, entry.end)

    def segment(self, entry: SegmentEntry) -> memoryview:
        """Its bytes, all of them that the log has, checked against its name."""
        content = self.store.get(entry.name.log_key)
        if len(content) != entry.name.size or digest_of(content) != entry.name.digest:
            raise ArchiveDamagedError(
                f"{self.store.url}: {entry.name.log_key} has other content than its name says"
            )
        return memoryview(content)[: entry.end - entry.start]

    def blocks(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """(log offset, bytes), in order, of all that is archived from `start` up to `end`; a gap is
        left out. Only the blocks with these bytes are read, segment by segment."""
        for entry in self.manifest.covering(start, end):
            low, high = max(start, entry.start), min(end, entry.end)
            index = self.index(entry)
            first, last = index.block_bounds(low, high)
            base = entry.start
            content = self.store.get(entry.name.log_key, first - base, last - base)
            try:
                if len(content) != last - first:
                    raise FormatError(f"{entry.name.log_key} ends at {first + len(content)}")
                index.check_blocks(first, content)
            except FormatError as error:
                raise ArchiveDamagedError(f"{self.store.url}: {error}") from error
            yield low, memoryview(content)[low - first : high - first]

    def read_blocks(self, entry: SegmentEntry, start: int, target: memoryview) -> bool:
        """Fills `target` with whole blocks of the segment from the log offset `start` on, without
        a copy; False, and nothing done, if the store cannot do that."""
        if not isinstance(self.store, FolderStore):
            return False
        index = self.index(entry)
        size = self.store.get_into(entry.name.log_key, start - entry.start, target)
        try:
            if size != len(target):
                raise FormatError(f"{entry.name.log_key} ends at {start + size}")
            index.check_blocks(start, target)
        except FormatError as error:
            raise ArchiveDamagedError(f"{self.store.url}: {error}") from error
        return True

    def read(self, start: int, end: int) -> bytes:
        """All bytes from `start` up to `end`. Raises NotArchivedError if one is not archived."""
        parts: list[memoryview] = []
        at = start
        for offset, content in self.blocks(start, end):
            if offset != at:
                break
            parts.append(content)
            at += len(content)
        if at != end:
            raise NotArchivedError(
                f"{self.store.url} has no byte of the log at {at}: it has {self.manifest.spans()}"
            )
        return b"".join(parts)

    def state(self, entry: StateEntry) -> ArchiveState:
        """Tables that the manifest names (`Manifest.state_at`, `prologue_at`)."""
        try:
            return decode_state(entry.name, self.store.get(entry.name.key))
        except FormatError as error:
            raise ArchiveDamagedError(f"{self.store.url}: {error}") from error

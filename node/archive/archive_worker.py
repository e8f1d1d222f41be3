"""One action of the archiver, done with a store and an object store.

log ──copy──▶ segment ──put──▶ log/…      then its index/…, then the manifest
"""

from collections.abc import Callable

from tandemlog.archive.archive_reader import ArchiveReader, newest_manifest
from tandemlog.archive.errors import ArchiveError, ObjectMissingError
from tandemlog.archive.object_store import ObjectStore
from tandemlog.archive.put_index import put_index
from tandemlog.format.archive.branches import newest_first
from tandemlog.format.archive.manifest import Manifest, StateEntry, encode_manifest
from tandemlog.format.archive.object_name import MANIFESTS
from tandemlog.format.archive.segment import Segment
from tandemlog.format.archive.state import CONSUMER_OFFSETS, ArchiveState, encode_state

from ...ha.store_port import tables_of
from ...storage.archiving.actions import (
    Action,
    Answer,
    Delete,
    Deleted,
    Failed,
    Gone,
    Look,
    Looked,
    Prove,
    Proved,
    Publish,
    Published,
    StateTaken,
    TakeState,
    Upload,
    Uploaded,
)
from ...storage.archiving.archiver import Archiver
from ...storage.archiving.log_segments import copied, log_view, read_segment
from ...storage.errors import OffsetOutOfRangeError, UnreadableError
from ...storage.message_store import MessageStore

PROOF_BYTES = 64 << 10


class ArchiveWorker:
    """See the module. `spend(bytes)` is called before bytes are put, and may wait.

    uploaded_bytes   of objects that were put since the start
    """

    def __init__(
        self,
        store: MessageStore,
        objects: ObjectStore,
        archiver: Archiver,
        spend: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._store = store
        self._objects = objects
        self._archiver = archiver
        self._spend = spend
        self._flush_at = 0.0
        self.uploaded_bytes = 0

    def step(self, now: float, *, is_chosen: bool, hurry: bool = False) -> float | None:
        """Do the next thing; returns until when there is nothing to do, None if there may be."""
        if self._archiver.is_working and (hurry or now >= self._flush_at):
            self._flush_at = now + self._archiver.config.interval_s
            self._flush()
        versions = tuple(table.version for table in tables_of(self._store).values())
        view = log_view(self._store, versions, is_chosen=is_chosen)
        action = self._archiver.next(view, now, hurry=hurry)
        if hasattr(action, "until"):
            return action.until
        self._archiver.answer(self.do(action), now)
        return None

    def _flush(self) -> None:
        """In async flush what is confirmed may wait long for its fsync, and for its archive."""
        store = self._store
        if store.log.flushed.value < store.reputed.value:
            store.flush()

    def do(self, action: Action) -> Answer:
        """What came of it."""
        try:
            return self._do(action)
        except ArchiveError as error:
            return Failed(str(error))
        except OffsetOutOfRangeError:
            return Gone()
        except UnreadableError as error:
            return Failed(str(error))

    def _do(self, action: Action) -> Answer:
        match action:
            case Look():
                return self._look()
            case Prove():
                return self._prove(action)
            case Upload():
                return self._upload(action)
            case TakeState():
                return self._take_state(action)
            case Publish(manifest=manifest):
                return self._publish(manifest)
            case Delete(key=key):
                self._objects.delete(key)
                return Deleted()
        raise TypeError(f"{action} is nothing to do")

    def _look(self) -> Looked:
        names = newest_first(each.key for each in self._objects.list(MANIFESTS))
        known = self._archiver.newest
        if names and known is not None and names[0] == known[0]:
            return Looked(known, tuple(names))
        return Looked(newest_manifest(self._objects), tuple(names))

    def _prove(self, action: Prove) -> Answer:
        """Equal bytes at the end of what is archived: ids of terms alone may not be known."""
        newest = self._archiver.newest
        assert newest is not None
        begin = max(action.entry.start, self._store.log.min_offset, action.end - PROOF_BYTES)
        if begin >= action.end:
            return Gone()
        try:
            archived = ArchiveReader(self._objects, newest[1]).read(begin, action.end)
        except ObjectMissingError as error:
            return Failed(f"the archive's newest manifest names what is not there: {error}")
        return Proved(archived == copied(self._store, begin, action.end))

    def _upload(self, action: Upload) -> Answer:
        segment = read_segment(self._store, action)
        if not isinstance(segment, Segment):
            return segment
        self._put(segment.name.log_key, segment.content)
        put_index(self._objects, segment.index, self._put)
        return Uploaded(segment.entry)

    def _take_state(self, action: TakeState) -> Answer:
        tables = tables_of(self._store)
        versions = tuple(table.version for table in tables.values())
        prologue = self._store.prologue(action.log_offset) if action.prologue else None
        at_ms = self._store.clock.now_ms()
        texts = {name: table.to_json().decode() for name, table in tables.items()}
        if action.prologue:
            # The archiver may be far behind: a group that is at the end by now was not there then.
            texts.pop(CONSUMER_OFFSETS, None)
        name, content = encode_state(ArchiveState(action.log_offset, texts, prologue, at_ms))
        self._put(name.key, content)
        return StateTaken(StateEntry(name, at_ms, action.prologue), versions)

    def _publish(self, manifest: Manifest) -> Answer:
        """No manifest names the new objects until now: a prune deletes what an archiver before has
        put, and this one has found there. Then they are put again."""
        newest = self._archiver.newest
        named = set() if newest is None else set(newest[1].keys())
        try:
            for key in sorted(set(manifest.keys()) - named):
                self._objects.get(key, 0, 1)
        except ObjectMissingError:
            return Gone()
        name, content = encode_manifest(manifest)
        self._put(name.key, content)
        return Published(name)

    def _put(self, key: str, content: bytes | memoryview) -> None:
        self._spend(len(content))
        if self._objects.put(key, content):
            self.uploaded_bytes += len(content)

"""Reads below the log's begin: from the archive, with the statuses and next offsets of a store's.

    queue     0 ─────────────── 700 ──────────────── 1000
              │   archive        │   files of the log  │        a get at 300 is of the archive,
              300 ▶ … 699      700 ▶ … 999                      one at 700 of the files

A get begins as every get does: by asking the files. What they have deleted, and only that, comes
from the archive, and ends where the files begin. So a reader goes from one to the other without a
gap, and without a message twice, also while retention deletes files.

Which bytes belong to this log is said by its history, as for an archiver: of an archive that was
cut against it, only what is below the cut counts. Where log and archive overlap, their bytes are
compared once for each term; an archive of other bytes is not read. Each block has its checksum, and
each record is compared with its unit before a reader gets it.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np

from tandemlog.archive.archive_reader import newest_manifest
from tandemlog.archive.archived_queues import ArchivedLog, ArchivedQueues, ArchivedUnits
from tandemlog.archive.archived_segments import ArchivedSegments
from tandemlog.archive.errors import ArchiveDamagedError
from tandemlog.archive.object_store import ObjectStore
from tandemlog.format.archive.manifest import Manifest
from tandemlog.format.files.log_history import NO_CUT
from tandemlog.format.filter.expression import Condition

from ...storage.archiving.log_segments import copied
from ...storage.errors import OffsetOutOfRangeError, StoreBusyError
from ...storage.message_store import MessageStore
from ...storage.queues.queue_search import Boundary
from ...storage.reads.filtering import Filtering
from ...storage.reads.record_copy import Expected, first_wrong
from ...storage.reads.results import GetResult, GetStatus
from ...storage.reads.selection import Selection, select, units_to_read
from .queue_begins import QueueBegin, QueueBegins

NUMBERS_PART: Final = 8
"""This part of the cache is for the numbers of queues."""
SEARCH_S: Final = 10.0
"""So long one call may read the archive; the next one continues with what it has found."""
LOOK_S: Final = 10.0
"""How long a manifest counts that this node has read itself, before its archiver has."""
PROOF_BYTES: Final = 64 << 10
SETTLED_S: Final = 1.0
PAUSE_S: Final = 0.005
"""The queues lose what points to a deleted file of the log some milliseconds after it."""


class ColdReader:
    """See the module. Safe to use from several threads; every call may wait for the object store,
    and raises ArchiveError if that does not answer or its objects are damaged, StoreBusyError if
    the search takes too long, or a new node does not know yet which log it has: ask again.

    `manifest()` is the newest that this node's archiver knows."""

    def __init__(
        self,
        store: MessageStore,
        objects: ObjectStore,
        cache_bytes: int,
        manifest: Callable[[], Manifest | None],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._objects = objects
        self._known_manifest = manifest
        self._now = now
        numbers_bytes = cache_bytes // NUMBERS_PART
        self.segments = ArchivedSegments(
            objects, cache_bytes - numbers_bytes, before_read=self._check_time
        )
        self._queues = ArchivedQueues(self.segments, numbers_bytes)
        self._begins = QueueBegins(self._queues)
        self._limits = threading.local()
        self._lock = threading.Lock()
        self._looked: tuple[float, Manifest | None] = (-LOOK_S, None)
        self._cut: tuple[object, ArchivedLog] | None = None
        self._proved: object = None
        self.messages = self.record_bytes = 0
        """That were read of the archive, for a reader."""

    # --- reads

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        max_bytes: int,
        tag_hashes: Collection[int] = (),
        condition: Condition | None = None,
    ) -> GetResult:
        """As StoreReader.get. OFFSET_TOO_SMALL means that the archive lacks it too; next is then
        the first offset that one of both has."""
        floor = self.floor()
        result = self._store.reader.get(
            topic, queue_id, queue_offset, max_messages, max_bytes, tag_hashes, condition
        )
        if not self.may_have_missed(result, floor):
            return result
        is_below = result.status is GetStatus.OFFSET_TOO_SMALL
        with self._searching():
            queue = topic, queue_id
            log = self._log()
            most = units_to_read(max_messages, max_bytes)
            found = self._queues.units(log, queue, queue_offset, most)
            if found is None or (found.first > queue_offset and not is_below):
                return result
            if found.first >= result.min_offset > queue_offset:
                return result
            result = replace(result, min_offset=min(found.first, queue_offset))
            if found.first > queue_offset:
                return replace(result, next_offset=found.first, min_offset=found.first)
            filtering = None
            if condition is not None:
                filtering = Filtering.of(condition, max_messages, max_bytes)
                max_messages, max_bytes = filtering.examined_messages, filtering.examined_bytes
            chosen = select(
                found.units, max_messages=max_messages, max_bytes=max_bytes, tag_hashes=tag_hashes,
                log_start=found.entry.start,
            )  # fmt: skip
            return self._taken(queue, found, chosen, result, filtering)

    def _taken(
        self,
        queue: tuple[str, int],
        found: ArchivedUnits,
        chosen: Selection,
        missed: GetResult,
        filtering: Filtering | None,
    ) -> GetResult:
        records: bytes | memoryview = b""
        cost = 0
        if len(chosen.sizes):
            chosen, records = self._records(queue, found, chosen)
        if filtering is not None:
            cost = filtering.cost(len(chosen.sizes), len(records))
            chosen, records = filtering.apply(chosen, records)
        self.messages += len(chosen.sizes)
        self.record_bytes += len(records)
        following, behind = found.first + chosen.examined, 0
        if not len(chosen.sizes):
            status = GetStatus.NO_MATCHED_MESSAGE
        else:
            status = GetStatus.FOUND
            behind = self._store.confirmed.value - int(chosen.physical_offsets[-1])
            dense = self._store.queue_table.get(*queue)
            self._store.stats.count_found(dense, len(chosen.sizes), len(records))
        return GetResult(
            status, following, missed.min_offset, missed.max_offset,
            chosen.sizes.astype(np.uint32), records, behind, cost,
        )  # fmt: skip

    def _records(
        self, queue: tuple[str, int], found: ArchivedUnits, chosen: Selection
    ) -> tuple[Selection, memoryview]:
        """What is chosen, as far as one call reads, and its records."""
        entry = found.entry
        records, count = self.segments.records(
            entry, chosen.physical_offsets - entry.start, chosen.sizes
        )
        if count < len(chosen.sizes):
            chosen = Selection(
                int(chosen.rows[count]), chosen.rows[:count], chosen.physical_offsets[:count],
                chosen.sizes[:count], chosen.removed,
            )  # fmt: skip
        expected = Expected(
            *queue, chosen.rows + found.first, chosen.physical_offsets, chosen.sizes
        )
        wrong = first_wrong(records, expected)
        if wrong >= 0:
            at = int(chosen.physical_offsets[wrong])
            raise ArchiveDamagedError(
                f"{self._objects.url}: {entry.name.index_key} says that message "
                f"{found.first + int(chosen.rows[wrong])} of {queue[0]}/{queue[1]} is at log "
                f"offset {at}, where it is not; `tandemlog backup verify` names what is damaged"
            )
        return chosen, records

    def search_offset(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary) -> int:
        """As StoreReader.search_offset, of all that archive and files have."""
        reader, queue = self._store.reader, (topic, queue_id)
        for _ in range(round(SETTLED_S / PAUSE_S)):
            if not self.has_moved(self.floor()):
                break
            time.sleep(PAUSE_S)
        found = reader.search_offset(topic, queue_id, timestamp, boundary)
        dense = self._store.queue_table.get(topic, queue_id)
        minimum = self._store.queues.min_offset(dense) if dense >= 0 else 0
        if found > minimum or minimum == 0:
            return found
        if (
            boundary is Boundary.UPPER
            and 0 <= reader.time_at(topic, queue_id, minimum) <= timestamp
        ):
            return found
        bound = timestamp + (boundary is Boundary.UPPER)
        with self._searching():
            log = self._log()
            first = self._begin_of(log, queue)
            if first is None or first.number >= minimum:
                return found
            older = self._queues.last_older(log, queue, bound, minimum)
            if older is None:
                return first.number
            if boundary is Boundary.UPPER:
                return older
            following = self._queues.units(log, queue, older + 1, 1)
            return minimum if following is None else min(following.first, minimum)

    def floor(self) -> int:
        """To be asked for before the files are: see `has_moved`."""
        return self._store.queues.log_minimum

    def may_have_missed(self, result: GetResult, floor: int) -> bool:
        """Whether the archive may have what the files did not give."""
        return result.status is GetStatus.OFFSET_TOO_SMALL or self.has_moved(floor)

    def has_moved(self, floor: int) -> bool:
        """Whether files were deleted since: between a file of the log and the units that point to
        it there is a moment in which a get passes its messages as if they had never been there."""
        return self._store.log.min_offset > floor

    def may_be_older(self, topic: str, queue_id: int, found: int) -> bool:
        """Whether the archive may have the message of a time that is `found` in the files."""
        dense = self._store.queue_table.get(topic, queue_id)
        minimum = self._store.queues.min_offset(dense) if dense >= 0 else 0
        return self.has_moved(self.floor()) or 0 < minimum >= found

    def begins(self, queues: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], QueueBegin]:
        """The first message that the archive has of each of these queues."""
        with self._searching():
            log = self._log()
            found = {queue: self._begin_of(log, queue) for queue in queues}
        return {queue: begin for queue, begin in found.items() if begin is not None}

    def _begin_of(self, log: ArchivedLog, queue: tuple[str, int]) -> QueueBegin | None:
        return self._begins.of(log, self._store.log_identity.newest, queue)

    # --- the archive of this log

    def _log(self) -> ArchivedLog:
        """What of the archive belongs to this log, and its files do not have any more."""
        store = self._store
        manifest = self._manifest()
        if manifest is None:
            return ArchivedLog(())
        history, begin = store.log_identity.history, store.log.min_offset
        key = manifest, history, begin
        with self._lock:
            if self._cut is not None and self._cut[0] == key:
                return self._cut[1]
        cut = manifest.history.cut_against(history)
        if cut == 0:
            cut = self._without_a_common_term(manifest)
        if history.log_id and manifest.history.log_id not in (0, history.log_id):
            if history.newest[0] and not history.newest[1]:
                raise StoreBusyError(
                    "this node has a new log, and its master has not said yet which one that is: "
                    "try again in a moment"
                )
            cut = 0
        if cut and not self._is_proved(manifest, cut):
            cut = 0
        log = ArchivedLog.of(manifest, min(cut, begin))
        with self._lock:
            self._cut = key, log
        return log

    def _manifest(self) -> Manifest | None:
        known = self._known_manifest()
        if known is not None:
            return known
        with self._lock:
            at, manifest = self._looked
            if self._now() - at >= LOOK_S:
                found = newest_manifest(self._objects)
                manifest = None if found is None else found[1]
                self._looked = self._now(), manifest
            return manifest

    def _without_a_common_term(self, manifest: Manifest) -> int:
        """The oldest terms go with the files that retention deletes: see continuation()."""
        history = self._store.log_identity.history
        oldest = history.terms[0].start_offset if history.terms else 0
        is_same = history.log_id and history.log_id == manifest.history.log_id
        return NO_CUT if is_same and manifest.end <= oldest else 0

    def _is_proved(self, manifest: Manifest, cut: int) -> bool:
        """Whether archive and files have the same bytes where both have them."""
        store = self._store
        terms = manifest.history.newest, store.log_identity.newest
        if self._proved == terms:
            return True
        end = min(cut, manifest.end, store.confirmed.value)
        entry = ArchivedLog(manifest.segments).holding(end - 1)
        if entry is not None:
            start = max(entry.start, store.log.min_offset, end - PROOF_BYTES)
            if start < end:
                offsets = np.array([start - entry.start], np.int64)
                content, _ = self.segments.records(entry, offsets, np.array([end - start]))
                try:
                    if content != copied(store, start, end):
                        return False
                except OffsetOutOfRangeError:
                    return True  # deleted meanwhile: there is nothing in both
        self._proved = terms
        return True

    # --- how long

    @contextmanager
    def _searching(self) -> Iterator[None]:
        self._limits.ends_at = self._now() + SEARCH_S
        try:
            yield
        finally:
            self._limits.ends_at = None

    def _check_time(self) -> None:
        ends_at = getattr(self._limits, "ends_at", None)
        if ends_at is not None and self._now() >= ends_at:
            raise StoreBusyError(
                f"the archive {self._objects.url} was searched for {SEARCH_S:g} s: try again, the "
                "search continues with what it has found"
            )

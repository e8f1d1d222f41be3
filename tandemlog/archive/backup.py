"""One backup: what an archive has not yet of a log, put there, and one manifest that names it.

    archive   [0 ───────────── 700)              the newest manifest's end, proved by its last bytes
    log       [0 ───────────── 700 ──── 950)
    put                        [700 ─── 950)     segments, their indexes, tables, then the manifest

A second backup into the same place moves only what is new. It is the archive that a node keeps as
it goes along, written once: the same objects, so restore and all readers know one form.

A state with a prologue is put for the log's begin and for the newest start of a commit log file: a
log that begins there can be restored whole. It has no consumer offsets, since those of now are not
those of that place.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from ..format.archive.branches import Behind, Continue, Foreign, continuation
from ..format.archive.manifest import (
    Manifest,
    SegmentEntry,
    StateEntry,
    encode_manifest,
    merged_history,
)
from ..format.archive.object_name import INDEX, LOG, STATE, ManifestName, digest_of
from ..format.archive.segment import take_segment
from ..format.archive.state import CONSUMER_OFFSETS, ArchiveState, encode_state
from ..format.errors import FormatError
from ..format.files import store_json
from ..format.files.log_history import LogHistory
from ..format.files.queue_unit import DelayLevels
from .archive_reader import ArchiveReader, newest_manifest
from .errors import BackupRefusedError, ObjectMissingError
from .object_store import ObjectStore
from .put_index import put_index

SEGMENT_BYTES: Final = 64 << 20
PROOF_BYTES: Final = 64 << 10


class BackupSource(Protocol):
    """A log and what is beside it. `begin` and `end` (confirmed, durable) are log offsets of the
    moment when the source was opened; `name` for people."""

    @property
    def name(self) -> str: ...

    @property
    def history(self) -> LogHistory: ...

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def file_size(self) -> int: ...

    @property
    def delay_levels(self) -> DelayLevels: ...

    @property
    def in_batch_queues(self) -> Collection[str]:
        """Topics whose records have no queue units."""
        ...

    def read(self, start: int, end: int) -> bytes:
        """All of these bytes, of one commit log file."""
        ...

    def state(self, log_offset: int, *, prologue: bool) -> ArchiveState:
        """The tables now, with the prologue of a log that begins there or without."""
        ...


@dataclass(frozen=True, slots=True)
class BackupReport:
    """`start`: from which log offset bytes were put; `put_objects` and `put_bytes` that were not
    there before; `gap`: (from, to) of the log that the source has no more; `cut`: where the log was
    cut below what is archived. `manifest` is the one that was there if nothing had changed."""

    name: ManifestName
    manifest: Manifest
    start: int
    put_objects: int = 0
    put_bytes: int = 0
    gap: tuple[int, int] | None = None
    cut: int | None = None


class _Putting:
    """Puts objects, and counts those that are new."""

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects
        self.count = 0
        self.size = 0

    def put(self, key: str, content: bytes | memoryview) -> None:
        if self.objects.put(key, content):
            self.count += 1
            self.size += len(content)

    def put_state(self, state: ArchiveState) -> StateEntry:
        name, content = encode_state(state)
        self.put(name.key, content)
        return StateEntry(name, state.at_ms, state.prologue is not None)


def backup(
    objects: ObjectStore,
    source: BackupSource,
    *,
    now_ms: int,
    segment_bytes: int = SEGMENT_BYTES,
    progress: Callable[[int, int], None] = lambda done, whole: None,
) -> BackupReport:
    """Raises BackupRefusedError where the archive is of another log, or ahead of this one, or where
    the log is damaged; ArchiveError, and what the source does. It can be repeated: what was put is
    found there."""
    newest = newest_manifest(objects)
    plan = _plan(objects, source, None if newest is None else newest[1])
    putting = _Putting(objects)
    base = plan.base
    kept = () if base is None else base.segments
    start = plan.offset
    if plan.gap is None:
        start, kept = _without_small_ones(kept, source, start, segment_bytes)
    put = _put_segments(putting, source, start, segment_bytes, progress)
    segments = (*kept, *put)
    end = segments[-1].end if segments else source.begin
    states = () if base is None else base.states
    tables = source.state(end, prologue=False)
    has_new = end > plan.offset or plan.cut is not None or newest is None
    if not has_new and base is not None and _has_tables(objects, base, tables):
        assert newest is not None
        return BackupReport(*newest, start=plan.offset)
    # the newest of one log offset counts, whatever the clocks of the machines say
    newest_ms = max((each.at_ms for each in states if each.name.log_offset == end), default=-1)
    tables = replace(tables, at_ms=max(tables.at_ms, newest_ms + 1))
    states = (*states, *_prologues(putting, source, base, end), putting.put_state(tables))
    manifest = Manifest(
        source.file_size,
        _history(base, source.history),
        segments,
        tuple(sorted(states, key=lambda each: (each.name.log_offset, each.at_ms))),
        end,
        0 if newest is None else newest[1].revision + 1,
        now_ms,
        source.name,
    )
    _check_there(objects, manifest, base)
    name, content = encode_manifest(manifest)
    putting.put(name.key, content)
    return BackupReport(name, manifest, start, putting.count, putting.size, plan.gap, plan.cut)


def _check_there(objects: ObjectStore, manifest: Manifest, base: Manifest | None) -> None:
    """No manifest names these objects until now, so a prune deletes them once they are older than
    its grace time: those of a run that takes as long, or that an earlier run has put."""
    new = set(manifest.keys()) - (set() if base is None else set(base.keys()))
    for prefix in (LOG, INDEX, STATE):
        new.difference_update(each.key for each in objects.list(prefix))
    if new:
        raise ObjectMissingError(
            f"{min(new)} is not in {objects.url} any more: a prune deleted it before a manifest "
            "named it. Run the backup again"
        )


def _plan(objects: ObjectStore, source: BackupSource, manifest: Manifest | None) -> Continue:
    """Where to continue, proved by the last bytes that are there."""
    plan = continuation(manifest, source.history, source.begin, source.end, source.file_size)
    if isinstance(plan, Behind | Foreign):
        raise BackupRefusedError(f"{source.name} is not backed up to {objects.url}: {plan.reason}")
    if plan.proof is not None and plan.base is not None:
        end = plan.base.end
        begin = max(plan.proof.start, source.begin, end - PROOF_BYTES)
        if ArchiveReader(objects, plan.base).read(begin, end) != source.read(begin, end):
            raise BackupRefusedError(
                f"{source.name} is not backed up to {objects.url}: its bytes before {end} are not "
                "those of the archive, which is of another log"
            )
    return plan


def _history(base: Manifest | None, history: LogHistory) -> LogHistory:
    """Of the archive and the log, also the terms that begin above what is put: a manifest has the
    epoch of the log when it was written."""
    return history if base is None else merged_history(base.history, history, base.end)


def _without_small_ones(
    kept: tuple[SegmentEntry, ...], source: BackupSource, start: int, segment_bytes: int
) -> tuple[int, tuple[SegmentEntry, ...]]:
    """Where to begin, and the segments below: the last ones, of which each is no larger than all
    that follow it, are put again as one with what is new. So each byte is put a logarithmic number
    of times, and backups of a quiet log do not leave many objects."""
    term_id, _ = _term_of(source.history, max(start - 1, 0))
    while kept and start < source.end and start % source.file_size:
        last = kept[-1]
        begins_later = _term_of(source.history, last.start)[1] <= start
        too_large = last.name.size > source.end - start or source.end - last.start > segment_bytes
        if begins_later or too_large or last.name.term_id != term_id or not last.is_whole:
            break
        if last.end != start or last.start < source.begin:
            break
        if digest_of(source.read(last.start, last.end)) != last.name.digest:
            break  # a disk may have turned a bit since: what is archived stays
        start, kept = last.start, kept[:-1]
    return start, kept


def _term_of(history: LogHistory, offset: int) -> tuple[int, int]:
    """Id and end of the term of that byte."""
    term_id, end = 0, 1 << 63
    for each in reversed(history.terms):
        if each.start_offset <= offset:
            term_id = each.term_id
            break
        end = each.start_offset
    return term_id, end


def _put_segments(
    putting: _Putting,
    source: BackupSource,
    start: int,
    segment_bytes: int,
    progress: Callable[[int, int], None],
) -> list[SegmentEntry]:
    entries: list[SegmentEntry] = []
    at, largest = start, segment_bytes
    while at < source.end:
        term_id, term_end = _term_of(source.history, at)
        file_end = at - at % source.file_size + source.file_size
        limit = min(at + largest, file_end, term_end, source.end)
        try:
            segment = take_segment(
                source.read(at, limit),
                at,
                term_id,
                source.file_size,
                delay_levels=source.delay_levels,
                in_batch_queues=source.in_batch_queues,
            )
        except FormatError as error:
            raise BackupRefusedError(
                f"{source.name} is not backed up beyond {at}: {error}; tandemlog verify says what "
                "is damaged"
            ) from error
        if segment is None:
            if limit < at + largest:
                break  # the end, inside of a record
            largest *= 2
            continue
        largest = segment_bytes
        putting.put(segment.name.log_key, segment.content)
        put_index(putting.objects, segment.index, putting.put)
        entries.append(segment.entry)
        at = segment.name.end
        progress(at - start, source.end - start)
    return entries


def _prologues(
    putting: _Putting, source: BackupSource, base: Manifest | None, end: int
) -> list[StateEntry]:
    newest_start = end - end % source.file_size
    wanted = {source.begin, newest_start}
    return [
        putting.put_state(_without_offsets(source.state(at, prologue=True)))
        for at in sorted(wanted)
        if source.begin <= at < end and at and (base is None or base.prologue_at(at) is None)
    ]


def _without_offsets(state: ArchiveState) -> ArchiveState:
    tables = {name: text for name, text in state.tables.items() if name != CONSUMER_OFFSETS}
    return replace(state, tables=tables)


def _has_tables(objects: ObjectStore, base: Manifest, tables: ArchiveState) -> bool:
    """Whether the newest tables of the archive are these."""
    entry = base.state_at(base.end)
    if entry is None or entry.name.log_offset != base.end:
        return False
    archived = ArchiveReader(objects, base).state(entry).tables
    return _rows(archived) == _rows(tables.tables)


def _rows(tables: Mapping[str, str]) -> dict[str, object]:
    """What they say; their versions grow with every open."""
    found: dict[str, object] = {}
    for name, text in tables.items():
        document = store_json.loads(text.encode())
        if isinstance(document, dict):
            document = {key: value for key, value in document.items() if key != "dataVersion"}
        found[name] = document
    return found

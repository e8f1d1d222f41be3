"""The log of a LogBuilder in an archive, in segments of the test's choice."""

from collections.abc import Iterable

from fakes.log_builder import LogBuilder
from tandemlog.archive.object_store import ObjectStore
from tandemlog.format.archive.manifest import Manifest, SegmentEntry, StateEntry, encode_manifest
from tandemlog.format.archive.object_name import ManifestName
from tandemlog.format.archive.segment import take_segment
from tandemlog.format.archive.segment_index import encode_index
from tandemlog.format.archive.state import TOPICS, ArchiveState, encode_state
from tandemlog.format.files.log_history import LogHistory, LogTerm

HISTORY = LogHistory(7, (LogTerm(1, 0, 1),))


def content_of(builder: LogBuilder, start: int, end: int) -> bytes:
    """Bytes of the log, of one file."""
    base = start - start % builder.file_size
    return bytes(builder._files[base][start - base : end - base])


def put_segments(
    store: ObjectStore,
    builder: LogBuilder,
    segment_bytes: int,
    start: int = 0,
    end: int | None = None,
) -> list[SegmentEntry]:
    """The log from `start` up to `end` in segments of at most `segment_bytes`, or one record."""
    entries: list[SegmentEntry] = []
    at, stop = start, builder.end if end is None else end
    while at < stop:
        file_end = at - at % builder.file_size + builder.file_size
        limit, size = min(file_end, stop), segment_bytes
        segment = None
        while segment is None:
            content = content_of(builder, at, min(at + size, limit))
            segment = take_segment(content, at, 1, builder.file_size)
            size *= 2
        store.put(segment.name.log_key, segment.content)
        store.put(segment.name.index_key, encode_index(segment.index))
        entries.append(segment.entry)
        at = segment.name.end
    return entries


def put_manifest(
    store: ObjectStore,
    builder: LogBuilder,
    entries: Iterable[SegmentEntry],
    history: LogHistory = HISTORY,
    revision: int = 0,
    topics: str | None = None,
) -> ManifestName:
    """`topics`: the table of a state at the end."""
    segments = tuple(entries)
    states: tuple[StateEntry, ...] = ()
    if topics is not None:
        state, packed = encode_state(ArchiveState(segments[-1].end, {TOPICS: topics}))
        store.put(state.key, packed)
        states = (StateEntry(state),)
    manifest = Manifest(
        builder.file_size, history, segments, states, segments[-1].end, revision=revision
    )
    name, content = encode_manifest(manifest)
    store.put(name.key, content)
    return name


def archive_log(store: ObjectStore, builder: LogBuilder, segment_bytes: int) -> ManifestName:
    """All of the builder's log."""
    return put_manifest(store, builder, put_segments(store, builder, segment_bytes))

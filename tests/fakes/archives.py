"""A store's log in an archive, as an archiver would have put it there."""

from collections.abc import Iterator, Sequence

from fakes.stores import Bench
from tandemlog.archive.object_store import ObjectStore
from tandemlog.format.archive.manifest import Manifest, SegmentEntry, StateEntry, encode_manifest
from tandemlog.format.archive.segment import take_segment
from tandemlog.format.archive.segment_index import encode_index
from tandemlog.format.archive.state import ArchiveState, encode_state


def state_of(bench: Bench, *, prologue_at: int | None = None) -> ArchiveState:
    """The tables of the store now; with a prologue for a log that begins there."""
    store = bench.store
    tables = {
        "topics": store.topics.to_json().decode(),
        "groups": store.groups.to_json().decode(),
        "consumer-offsets": store.consumer_offsets.to_json().decode(),
        "group-members": store.group_members.to_json().decode(),
        "log-identity": store.log_identity.to_json().decode(),
    }
    at = store.confirmed.value if prologue_at is None else prologue_at
    prologue = None if prologue_at is None else store.prologue(prologue_at)
    return ArchiveState(at, tables, prologue, bench.clock.now_ms())


def archive(
    bench: Bench,
    objects: ObjectStore,
    states: Sequence[ArchiveState] = (),
    *,
    begin: int | None = None,
    segment_bytes: int = 3000,
) -> Manifest:
    """Puts the whole confirmed log, from `begin` on, and these states."""
    store = bench.store
    start = store.log.min_offset if begin is None else begin
    entries: list[SegmentEntry] = []
    for content, offset in _pieces(bench, start, segment_bytes):
        term = store.epochs.table.entry_at(offset)
        ids = {each.epoch: each.term_id for each in store.log_identity.history.terms}
        term_id = 0 if term is None else ids[term.epoch]
        segment = take_segment(content, offset, term_id, store.log.file_size)
        assert segment is not None
        objects.put(segment.name.log_key, segment.content)
        objects.put(segment.name.index_key, encode_index(segment.index))
        entries.append(segment.entry)
    rows = []
    for state in states:
        name, data = encode_state(state)
        objects.put(name.key, data)
        rows.append(StateEntry(name, state.at_ms, state.prologue is not None))
    manifest = Manifest(
        store.log.file_size,
        store.log_identity.history,
        tuple(entries),
        tuple(sorted(rows, key=lambda each: each.name.log_offset)),
        store.confirmed.value,
    )
    key, data = encode_manifest(manifest)
    objects.put(key.key, data)
    return manifest


def _pieces(bench: Bench, start: int, segment_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Stretches that end at a record, of one file and one term."""
    log, epochs = bench.store.log, bench.store.epochs.table
    end = bench.store.confirmed.value
    while start < end:
        stop = min(start - start % log.file_size + log.file_size, end)
        stop = min(stop, epochs.end_of(start) or stop)
        content = bytes(log.read(start, stop - start))
        segment = take_segment(content[:segment_bytes], start, 0, log.file_size)
        assert segment is not None
        if stop - start > segment_bytes:
            content = content[: segment.name.size]
        yield content, start
        start += len(content)

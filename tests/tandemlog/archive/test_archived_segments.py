"""Blocks and indexes of an archive through a cache: each read once, each byte checked."""

import threading

import numpy as np
import pytest

from fakes.fake_object_store import FakeObjectStore
from tandemlog.archive.archived_segments import AHEAD_BLOCKS, MOST_BLOCKS, ArchivedSegments
from tandemlog.archive.errors import ArchiveDamagedError
from tandemlog.archive.segment_cache import ENTRY_BYTES, SegmentCache
from tandemlog.format.archive.manifest import SegmentEntry
from tandemlog.format.archive.object_name import SegmentName, digest_of
from tandemlog.format.archive.segment_index import BLOCK_BYTES, encode_index, make_index
from tandemlog.format.columns.dispatch import UnitColumns
from tandemlog.format.files.queue_unit import UNIT_DTYPE

BLOCKS = 24
SIZE = BLOCKS * BLOCK_BYTES - 5_000
PATIENCE_S = 20.0


def segment(objects: FakeObjectStore) -> tuple[SegmentEntry, bytes]:
    """Bytes without records: these reads know nothing of records."""
    content = np.random.default_rng(1).bytes(SIZE)
    name = SegmentName(4096, 4096 + SIZE, 7, digest_of(content))
    none = np.zeros(0, np.int64)
    units = UnitColumns((), none, none.astype(np.int32), none, np.zeros(0, UNIT_DTYPE))
    objects.put(name.log_key, content)
    objects.put(name.index_key, encode_index(make_index(name, content, none, none, units)))
    return SegmentEntry(name, name.end), content


def wanted(*pairs: tuple[int, int]) -> tuple["np.typing.NDArray[np.int64]", ...]:
    offsets, sizes = zip(*pairs, strict=True)
    return np.array(offsets, np.int64), np.array(sizes, np.int64)


def gets(objects: FakeObjectStore) -> int:
    return sum(call == "get" for call, _ in objects.calls)


@pytest.mark.parametrize("cache_bytes", [64 << 20, 2 << 20, 0])
def test_records_come_from_as_many_blocks_as_a_call_may_read(cache_bytes: int) -> None:
    objects = FakeObjectStore()
    entry, content = segment(objects)
    segments = ArchivedSegments(objects, cache_bytes)
    draw = np.random.default_rng(2)
    offsets = np.sort(draw.choice(SIZE - 9_000, 400, replace=False)).astype(np.int64)
    sizes = np.minimum(draw.integers(1, 9_000, 400), np.diff(offsets, append=SIZE))
    at = 0
    while at < len(offsets):
        records, count = segments.records(entry, offsets[at:], sizes[at:])
        rows = range(at, at + count)
        assert bytes(records) == b"".join(content[offsets[n] : offsets[n] + sizes[n]] for n in rows)
        first, last = int(offsets[at]), int(offsets[at + count - 1] + sizes[at + count - 1])
        assert last // BLOCK_BYTES - first // BLOCK_BYTES <= MOST_BLOCKS
        at += count
    assert segments.cache.held_bytes <= cache_bytes


def test_a_record_larger_than_a_call_may_read_is_read_whole() -> None:
    objects = FakeObjectStore()
    entry, content = segment(objects)
    size = (MOST_BLOCKS + 2) * BLOCK_BYTES
    records, count = ArchivedSegments(objects, 1 << 20).records(
        entry, *wanted((100, size), (100 + size, 10))
    )
    assert (bytes(records), count) == (content[100 : 100 + size], 1)


def test_a_reader_that_goes_on_reads_ahead() -> None:
    objects = FakeObjectStore()
    entry, _ = segment(objects)
    segments = ArchivedSegments(objects, 64 << 20)
    for block in range(BLOCKS):
        segments.records(entry, *wanted((block * BLOCK_BYTES, 10)))
    assert gets(objects) == 1 + 1 + -(-(BLOCKS - 1) // AHEAD_BLOCKS)
    assert segments.cache.misses == gets(objects)


@pytest.mark.parametrize("damage", ["flipped", "shorter"])
def test_damage_in_a_block_is_said_and_the_others_are_read(damage: str) -> None:
    objects = FakeObjectStore()
    entry, content = segment(objects)
    key = entry.name.log_key
    if damage == "flipped":
        at = 3 * BLOCK_BYTES + 77
        objects.objects[key] = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    else:
        objects.objects[key] = content[: 3 * BLOCK_BYTES + 77]
    segments = ArchivedSegments(objects, 64 << 20)
    records, _ = segments.records(entry, *wanted((5, 10)))
    assert bytes(records) == content[5:15]
    with pytest.raises(ArchiveDamagedError):
        segments.records(entry, *wanted((3 * BLOCK_BYTES, 10)))
    assert segments.failures == 1


def test_what_several_ask_for_at_once_is_read_once() -> None:
    cache = SegmentCache(1000)
    begun, go_on = threading.Event(), threading.Event()
    reads: list[int] = []

    def read() -> bytes:
        reads.append(1)
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return b"value"

    found: list[bytes] = []

    def ask() -> None:
        found.append(cache.get("key", read, len))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(PATIENCE_S)
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == [b"value"] * 4
    assert len(reads) == 1


def test_what_was_used_longest_ago_leaves_and_an_error_is_not_kept() -> None:
    cache = SegmentCache(2 * (100 + ENTRY_BYTES))
    for key in "abac":
        cache.get(key, lambda: bytes(100), len)
    assert [each in cache for each in "abc"] == [True, False, True]
    cache.get("d", lambda: bytes(9_999), len)
    assert "d" not in cache
    assert cache.held_bytes == cache.limit_bytes

    def fails() -> bytes:
        raise OSError("no")

    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            cache.get("e", fails, len)
    assert cache.get("e", lambda: b"now", len) == b"now"

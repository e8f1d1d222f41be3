"""The volatile write cache of the simulated disk: what is read, and what a cut may leave."""

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from helpers.simulated_disk.write_cache import SECTOR, CutCounts, WriteCache

SECTORS = 16


class MemoryMedium:
    def __init__(self) -> None:
        self.content = bytearray(SECTORS * SECTOR)
        self.size = len(self.content)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.content[offset : offset + size])

    def write(self, offset: int, data: bytes) -> None:
        self.content[offset : offset + len(data)] = data


@dataclass(frozen=True)
class Write:
    sector: int
    count: int


@dataclass(frozen=True)
class Flush:
    """Begun before the writes `meanwhile`, and ended after them."""

    meanwhile: tuple[Write, ...]


def writes() -> st.SearchStrategy[Write]:
    return st.builds(Write, st.integers(0, SECTORS - 4), st.integers(1, 4))


def steps() -> st.SearchStrategy[list[Write | Flush]]:
    flush = st.builds(Flush, st.lists(writes(), max_size=3).map(tuple))
    return st.lists(st.one_of(writes(), writes(), flush), max_size=20)


def content(version: int) -> bytes:
    return version.to_bytes(4, "big") * (SECTOR // 4)


@dataclass
class Model:
    """A disk whose writes have numbers: the versions that each sector may have after a cut, the
    durable one first."""

    medium: MemoryMedium = field(default_factory=MemoryMedium)
    possible: list[list[int]] = field(default_factory=lambda: [[0] for _ in range(SECTORS)])
    version: int = 0

    def __post_init__(self) -> None:
        self.cache = WriteCache(self.medium)

    def write(self, write: Write) -> None:
        self.version += 1
        self.cache.write(write.sector * SECTOR, content(self.version) * write.count)
        for sector in range(write.sector, write.sector + write.count):
            self.possible[sector].append(self.version)

    def flush(self, flush: Flush) -> None:
        mark, before = self.cache.begin_flush(), self.version
        for each in flush.meanwhile:
            self.write(each)
        self.cache.end_flush(mark)
        for sector, versions in enumerate(self.possible):
            durable = max(each for each in versions if each <= before)
            self.possible[sector] = [each for each in versions if each >= durable]

    def play(self, script: list[Write | Flush]) -> None:
        for step in script:
            if isinstance(step, Write):
                self.write(step)
            else:
                self.flush(step)


@given(steps(), st.integers(0, SECTORS * SECTOR), st.integers(0, SECTORS * SECTOR))
def test_what_was_written_last_is_read(script: list[Write | Flush], offset: int, size: int) -> None:
    model = Model()
    model.play(script)
    newest = b"".join(content(versions[-1]) for versions in model.possible)
    assert model.cache.read(0, SECTORS * SECTOR) == newest
    assert model.cache.read(offset, size) == newest[offset : offset + size]


@given(steps(), st.integers())
def test_after_a_cut_each_sector_has_its_durable_version_or_a_later_one(
    script: list[Write | Flush], seed: int
) -> None:
    model = Model()
    model.play(script)
    cached = len(model.cache.writes)
    counts = model.cache.cut(random.Random(seed))
    assert counts.whole + counts.torn + counts.lost == cached
    after = model.cache.read(0, SECTORS * SECTOR)
    assert after == bytes(model.medium.content)
    for sector, versions in enumerate(model.possible):
        found = after[sector * SECTOR : (sector + 1) * SECTOR]
        assert found in [content(version) for version in versions]


@given(steps(), st.integers())
def test_a_flush_leaves_a_cut_nothing_to_take(script: list[Write | Flush], seed: int) -> None:
    model = Model()
    model.play(script)
    before = model.cache.read(0, SECTORS * SECTOR)
    model.cache.end_flush(model.cache.begin_flush())
    assert model.cache.cut(random.Random(seed)) == CutCounts()
    assert model.cache.read(0, SECTORS * SECTOR) == before


@given(steps(), st.integers())
def test_a_seed_repeats_a_cut(script: list[Write | Flush], seed: int) -> None:
    first, second = Model(), Model()
    for model in (first, second):
        model.play(script)
        model.cache.cut(random.Random(seed))
    assert first.medium.content == second.medium.content


def survivors(seed: int) -> tuple[bool, ...]:
    """Which sectors of two writes of two sectors each survive a cut."""
    cache = WriteCache(MemoryMedium())
    for number in range(2):
        cache.write(number * 2 * SECTOR, b"x" * 2 * SECTOR)
    cache.cut(random.Random(seed))
    return tuple(cache.read(sector * SECTOR, 1) == b"x" for sector in range(4))


def test_a_cut_can_leave_any_part_of_the_cache() -> None:
    """All, nothing, a torn write, and a later write without an earlier one: each mix comes."""
    assert len({survivors(seed) for seed in range(3_000)}) == 2**4


def test_two_flushes_at_once_end_in_any_order() -> None:
    medium = MemoryMedium()
    cache = WriteCache(medium)
    cache.write(0, b"a" * SECTOR)
    first = cache.begin_flush()
    cache.write(0, b"b" * SECTOR)
    second = cache.begin_flush()
    cache.end_flush(second)
    cache.end_flush(first)
    assert medium.read(0, SECTOR) == b"b" * SECTOR
    assert cache.writes == ()

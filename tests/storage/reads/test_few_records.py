"""A get of a few messages gives what the columns give, and leaves to them whatever is unusual."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.batches import Put, batch_of
from fakes.crashed_stores import flip
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.constants import BODY_LENGTH_OFFSET, MAGIC_OFFSET, PHYSICAL_OFFSET_OFFSET
from tandemlog_server.storage.errors import StoreBusyError
from tandemlog_server.storage.reads import store_reader
from tandemlog_server.storage.reads.few_records import FEW
from tandemlog_server.storage.reads.results import GetResult, GetStatus

WITH_CRC = replace(CONFIG, property_crc=True)
COUNT = 2 * FEW + 3
PLAIN = Put("T", 0, b"x" * 40, b"TAGS\x01a\x02")


def stored(puts: list[Put], *, crc: bool = False) -> Bench:
    bench = Bench(WITH_CRC if crc else CONFIG)
    for put in puts:
        bench.store.put(batch_of([put]))
    bench.settle()
    return bench


def told(result: GetResult) -> tuple[object, ...]:
    return (
        result.status, result.next_offset, result.min_offset, result.max_offset,
        result.sizes.tolist(), bytes(result.records), result.behind,
    )  # fmt: skip


def both(bench: Bench, offset: int, messages: int, size: int) -> tuple[object, object]:
    """What a get gives, and what it gives where nothing counts as few."""
    get = bench.store.reader.get
    quick = told(get("T", 0, offset, messages, size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_reader, "FEW", -1)
        return quick, told(get("T", 0, offset, messages, size))


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 900), min_size=1, max_size=COUNT),
    crc=st.booleans(),
    asked=st.lists(
        st.tuples(st.integers(0, COUNT + 2), st.integers(0, FEW + 2), st.integers(1, 6_000)),
        min_size=1,
        max_size=12,
    ),
)
def test_the_same_as_by_columns(
    sizes: list[int], crc: bool, asked: list[tuple[int, int, int]]
) -> None:
    # between them lies what other queues have
    puts = [replace(PLAIN, body=b"x" * size, queue_id=n % 2) for n, size in enumerate(sizes)]
    bench = stored(puts, crc=crc)
    for offset, messages, size in asked:
        quick, columns = both(bench, offset, messages, size)
        assert quick == columns
        found = bench.store.reader.get_in_memory("T", 0, offset, messages, size)
        assert found is None or told(found) == columns
        few = 0 < messages <= FEW and offset < len(sizes[::2])
        assert (found is not None) is few


def test_what_the_disk_would_have_to_be_read_for_is_not_in_memory() -> None:
    bench = stored([PLAIN, PLAIN])
    reader, stats = bench.store.reader, bench.store.stats
    gets = stats.gets
    for where in ("is_cached", "in_memory"):
        with pytest.MonkeyPatch.context() as patch:
            bench.store.persist()  # units are in files from here on
            patch.setattr(bench.files, where, lambda *_: False)
            assert reader.get_in_memory("T", 0, 0, 2, 6_000) is None
    assert reader.get_in_memory("U", 0, 0, 2, 6_000) is None
    assert stats.gets == gets
    found = reader.get_in_memory("T", 0, 0, 2, 6_000)
    assert found is not None
    assert (found.next_offset, stats.gets) == (2, gets + 1)


@pytest.mark.parametrize(
    "put",
    [
        replace(PLAIN, born_host="[::1]:7"),
        replace(PLAIN, version=2),
        replace(PLAIN, body=b""),
        replace(PLAIN, properties=b""),
    ],
)
def test_other_records(put: Put) -> None:
    bench = stored([PLAIN, put, PLAIN])
    quick, columns = both(bench, 0, 0, 1 << 20)
    assert quick == columns
    assert bench.store.reader.get("T", 0, 0, 0, 1 << 20).count == 3


def test_an_ordinary_get_needs_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = stored([PLAIN] * 5)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("columns were used")

    monkeypatch.setattr(store_reader, "select", refuse)
    found = bench.store.reader.get("T", 0, 1, 3, 1 << 20)
    assert (found.status, found.next_offset, found.count) == (GetStatus.FOUND, 4, 3)
    monkeypatch.setattr(store_reader, "FEW", 2)
    with pytest.raises(AssertionError, match="columns"):
        bench.store.reader.get("T", 0, 1, 3, 1 << 20)


def topic_at(size: int) -> int:
    """Of the first letter of the topic, in PLAIN."""
    return size - len(PLAIN.properties) - 2 - 1


@pytest.mark.parametrize(
    "place",
    [
        lambda _: 3,  # its size
        lambda _: MAGIC_OFFSET,
        lambda _: 15,  # queue id
        lambda _: 27,  # queue offset
        lambda _: PHYSICAL_OFFSET_OFFSET + 7,
        lambda _: BODY_LENGTH_OFFSET + 3,
        topic_at,
    ],
)
def test_a_flipped_bit_is_found(place: Callable[[int], int]) -> None:
    bench = stored([PLAIN] * 3)
    size = int(bench.store.reader.get("T", 0, 0, 1, 1 << 20).sizes[0])
    flip(bench, DIRECTORY / "commitlog" / f"{0:020d}", size + place(size))
    assert bench.store.reader.get("T", 0, 0, 1, 1 << 20).count == 1
    with pytest.raises(StoreBusyError, match="where its record is not"):
        bench.store.reader.get("T", 0, 0, 2, 1 << 20)


def test_a_wrong_crc_is_found() -> None:
    bench = stored([PLAIN] * 3, crc=True)
    size = int(bench.store.reader.get("T", 0, 0, 1, 1 << 20).sizes[0])
    flip(bench, DIRECTORY / "commitlog" / f"{0:020d}", size + BODY_LENGTH_OFFSET + 6)
    with pytest.raises(StoreBusyError, match="where its record is not"):
        bench.store.reader.get("T", 0, 0, 2, 1 << 20)

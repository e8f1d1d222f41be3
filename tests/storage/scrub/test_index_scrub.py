"""Index files that disagree with the log are found by the scrub and made right again.

Here a sample of the bytes; all of them with TANDEMLOG_EVERY_BYTE=1 on this file.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fakes.flipped_stores import Base, Place, base_store
from fakes.scrubbed_trio import Trio, turn
from fakes.stores import DIRECTORY
from tandemlog.format.files.index_layout import ENTRY_SIZE, decode_index_header, entry_position
from tandemlog_server.storage.index.index_service import IndexService
from tandemlog_server.storage.scrub.index_scrub import IndexScrub
from tandemlog_server.storage.tools.verify import verify

EVERY = int(os.environ.get("TANDEMLOG_EVERY_BYTE", "0")) or 41
KEYS = [(topic, f"k{number}") for topic in ("orders", "audit", "x") for number in range(3)]
INDEX = DIRECTORY / "index"


@pytest.fixture(scope="module")
def base() -> Base:
    return base_store(clean=True)


def index_of(trio: Trio) -> IndexService:
    found = trio.store._parts.index
    assert found is not None
    return found


def answers(trio: Trio) -> list[tuple[bytes, ...]]:
    return [
        tuple(trio.store.reader.query_key(topic, key, max_messages=0).records)
        for topic, key in KEYS
    ]


def contents(trio: Trio) -> dict[str, bytes]:
    """What the disk has of the index."""
    trio.store.persist()
    files = trio.files[0]
    return {name: files.read_file(INDEX / name) for name in files.listdir(INDEX)}


def counts_for_something(base: Base, path: Path, at: int) -> bool:
    """Not so entry 0, and those that are not written yet."""
    header = decode_index_header(base.contents[path])
    slots = base.config.index_slots
    first, end = entry_position(slots, 1), entry_position(slots, header.next_entry)
    return at < first - ENTRY_SIZE or first <= at < end


def sample(base: Base) -> Iterator[tuple[Place, int]]:
    for number, (path, at, count) in enumerate(base.places("index")):
        if number % EVERY == EVERY // 2 and counts_for_something(base, path, at):
            nth = number // EVERY
            yield (path, at, count), 0xFF if nth % 3 == 0 else 1 << nth % 8


def test_the_store_has_several_index_files(base: Base) -> None:
    trio = Trio(base.config, base.contents)
    assert len(contents(trio)) >= 2
    right = contents(trio)
    trio.round()
    assert contents(trio) == right
    assert trio.scrubber.counts.entries == 0
    trio.close()


def test_every_byte_of_the_index_is_made_right_again(base: Base) -> None:
    trio = Trio(base.config, base.contents)
    right, found = contents(trio), answers(trio)
    places = 0
    for (path, at, count), mask in sample(base):
        places += 1
        before = trio.scrubber.counts.entries
        turn(trio.files[0], path, at, mask, count)
        for mine, whole in zip(answers(trio), found, strict=True):
            assert set(mine) <= set(whole), "a wrong message"
        trio.round()
        assert trio.scrubber.counts.entries > before, (path, at, mask)
        assert contents(trio) == right, (path, at, mask)
        assert answers(trio) == found, (path, at, mask)
    assert places > 10
    trio.close()


def test_what_was_turned_while_the_node_was_down_is_made_right_too(base: Base) -> None:
    whole = Trio(base.config, base.contents)
    found = answers(whole)
    whole.close()
    for (path, at, count), mask in list(sample(base))[::3]:
        turned = base.turned(path, at, mask, count)
        held = {each: turned.read_file(each) for each in base.contents}
        trio = Trio(base.config, held)
        for _ in range(2):  # what one round cuts is filled by dispatch, and compared by the next
            trio.round()
        assert answers(trio) == found, (path, at, mask)
        before = trio.scrubber.counts.entries
        trio.round()
        assert trio.scrubber.counts.entries == before, "it comes to an end"
        trio.store.close()
        report = verify(base.config, trio.files[0])
        assert not [each for each in report.faults if "index" in str(each)], (path, at, mask)
        for other in trio.stores[1:]:
            other._lock_file.release()


def test_an_index_file_that_cannot_be_read_is_made_again(base: Base) -> None:
    trio = Trio(base.config, base.contents)
    found = answers(trio)
    count = len(trio.files[0].listdir(INDEX))
    for number in range(count):
        trio.store.persist()
        name = trio.files[0].listdir(INDEX)[number]
        trio.files[0].spoil(INDEX / name, 200, 4)
        trio.round()
        trio.round()
        assert answers(trio) == found, name
    assert len(index_of(trio).files) == count
    trio.close()


def test_an_index_that_lacks_entries_is_filled_again(base: Base) -> None:
    trio = Trio(base.config, base.contents)
    found, index = answers(trio), index_of(trio)
    file = index.files[1]
    first = int(file.read(5, 6)["physical_offset"][0])
    # entries of a record are gone, and those behind it lie where they were not before
    index.truncate(first)
    end = trio.store.log.wrote.value
    batch = trio.store._parts.source.batch(first, end, index=True)
    columns = batch.columns
    rows = columns.entry_record
    some = slice(20, None)
    index.insert(
        columns.key_hash[some],
        columns.physical_offset[rows][some],
        columns.store_timestamp[rows][some],
        end,
    )
    assert answers(trio) != found
    trio.round()
    trio.round()
    assert answers(trio) == found
    trio.close()


def test_a_file_without_tags_among_others_is_left_alone(base: Base) -> None:
    """As a broker of before 5.4 has left it."""
    trio = Trio(base.config, base.contents)
    index, source = index_of(trio), trio.store._parts.source
    index.truncate(0)
    source.index_tags = False
    trio.store.reput.run_to()
    right = contents(trio)
    source.index_tags = True
    trio.round()
    trio.round()
    assert contents(trio) == right
    assert trio.scrubber.counts.entries == 0
    trio.close()


def test_a_round_that_begins_inside_a_file_knows_its_chains(base: Base) -> None:
    """A process that starts in the middle of a round."""
    trio = Trio(base.config, base.contents)
    index = index_of(trio)
    file = index.files[-1]
    start = int(file.read(9, 10)["physical_offset"][0])
    right = contents(trio)
    slot = 40 + 4 * int(np.flatnonzero(file.open_table())[0])
    turn(trio.files[0], file.path, slot, 0x40)
    scrub = IndexScrub(index)
    source, end = trio.store._parts.source, trio.store.log.wrote.value
    batch = source.batch(start, end, index=True)
    while batch.end > batch.start:
        scrub.check(source, batch, 0)
        batch = source.batch(batch.end, end, index=True)
    scrub.finish()
    assert scrub.mended > 0
    assert contents(trio) == right
    trio.close()


def test_the_log_may_begin_before_the_index(base: Base) -> None:
    """As where a broker's oldest index files are gone."""
    config = replace(base.config)
    oldest = sorted(each for each in base.contents if each.parent == INDEX)[0]
    held = {path: data for path, data in base.contents.items() if path != oldest}
    trio = Trio(config, held)
    right = contents(trio)
    trio.round()
    assert contents(trio) == right
    trio.close()

"""A node that scrubs its log against two others: what is wrong is found, judged and mended."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.batches import Put, batch_of
from fakes.flipped_stores import Base, base_store
from fakes.scrubbed_trio import DAY, Trio, turn
from fakes.stores import DIRECTORY
from tandemlog.format.record.record import decode_record
from tandemlog_server.storage.errors import StoreError, UnreadableError
from tandemlog_server.storage.scrub.block_answers import BlockQuestion, answer
from tandemlog_server.storage.scrub.log_blocks import LogBlocks
from tandemlog_server.storage.scrub.log_mending import evidence
from tandemlog_server.storage.scrub.scrub_plan import RETRY_MS
from tandemlog_server.storage.scrub.scrubber import (
    BYTES_PER_WORK_S,
    IDLE_S,
    RECORD_COST,
    PeerError,
    Scrubber,
)
from tandemlog_server.storage.scrub.verdicts import CopyState

OWN = DIRECTORY / "tandemlog"


@pytest.fixture(scope="module")
def base() -> Base:
    return base_store(clean=True, property_crc=True)


@pytest.fixture(scope="module")
def loose() -> Base:
    """Without CRCs of whole records."""
    return base_store(clean=True)


@pytest.fixture
def trio(base: Base) -> Iterator[Trio]:
    trio = Trio(base.config, base.contents)
    yield trio
    trio.close()


def place_of(base: Base, number: int) -> tuple[Path, int, int]:
    """File, begin and size of a record."""
    start, end = sorted(base.spans)[number]
    at = start % base.config.commit_log_file_size
    return DIRECTORY / "commitlog" / f"{start - at:020d}", at, end - start


def log_of(trio: Trio, node: int = 0) -> list[bytes]:
    folder = DIRECTORY / "commitlog"
    files = trio.files[node]
    return [files.read_file(folder / each) for each in files.listdir(folder)]


def served(trio: Trio, base: Base) -> dict[tuple[str, int, int], bytes]:
    """Every message that node 0 gives now."""
    found = {}
    for topic, queue_id, number in base.records:
        try:
            result = trio.store.reader.get(topic, queue_id, number, 1, 1 << 20)
        except StoreError:
            continue
        if result.count:
            data = bytes(result.records)
            found[topic, queue_id, decode_record(data, check_crc=False).queue_offset] = data
    return found


def test_a_round_over_equal_logs_compares_all_of_them(trio: Trio) -> None:
    trio.round()
    counts = trio.scrubber.counts
    assert counts.bytes == trio.store.confirmed.value
    assert counts.compared == counts.blocks > 0
    assert (counts.damaged, counts.mended, counts.failed) == (0, 0, 0)
    assert not evidence(trio.files[0], OWN)


def test_a_flip_is_mended_and_named(trio: Trio, base: Base) -> None:
    right = log_of(trio)
    path, at, size = place_of(base, 3)
    turn(trio.files[0], path, at + size // 2, 4)
    trio.round()
    assert log_of(trio) == right
    assert trio.scrubber.counts.mended == 1
    assert len(evidence(trio.files[0], OWN)) == 1
    assert served(trio, base) == base.records
    assert not trio.scrubber.plan.open


def test_a_flip_that_no_crc_shows_is_mended_by_the_majority(loose: Base) -> None:
    trio = Trio(loose.config, loose.contents)
    right = log_of(trio)
    path, at, _ = place_of(loose, 2)
    turn(trio.files[0], path, at + 40, 1)  # the time at which the message was made
    trio.round()
    assert log_of(trio) == right
    assert trio.scrubber.counts.mended == 1
    assert trio.scrubber.counts.damaged == 0
    assert trio.store.log.barred == ()
    assert served(trio, loose) == loose.records
    trio.close()


def test_what_the_majority_calls_wrong_is_not_served_until_it_is_mended(loose: Base) -> None:
    trio = Trio(loose.config, loose.contents)
    path, at, size = place_of(loose, 2)
    turn(trio.files[0], path, at + 40, 1)
    for peer in trio.peers:
        peer.fetch = _refuse  # type: ignore[method-assign]
    trio.round()
    assert trio.scrubber.counts.failed == 1
    with pytest.raises(UnreadableError):
        trio.store.log.view(int(path.name) + at, size)
    [opened] = trio.scrubber.plan.open.values()
    assert "could not be mended yet" in opened.reason
    for peer in trio.peers:
        del peer.fetch
    trio.clock.advance(RETRY_MS / 1000)
    trio.scrubber.step()
    trio.store.reput.run_to()
    assert not trio.scrubber.plan.open
    assert served(trio, loose) == loose.records
    trio.close()


def test_a_block_that_grew_until_it_was_mended_is_read_again(loose: Base) -> None:
    trio = Trio(loose.config, loose.contents)
    ends = [store.log.wrote.value for store in trio.stores]
    path, at, _ = place_of(loose, len(loose.spans) - 1)  # in the last block
    turn(trio.files[0], path, at + 40, 1)
    for peer in trio.peers:
        peer.fetch = _refuse  # type: ignore[method-assign]
    trio.round()
    assert trio.store.log.barred[0][1] == ends[0]
    for store in trio.stores:
        store.put(batch_of([Put(topic="orders")]))
        store.flush()
        store.reput.run_to()
    assert len({bytes(store.log.view(ends[0], 40)) for store in trio.stores}) == 1
    for peer in trio.peers:
        del peer.fetch
    trio.clock.advance(RETRY_MS / 1000)
    trio.round()
    assert trio.scrubber.counts.mended == 1
    assert trio.store.log.barred == ()
    trio.close()


def _refuse(start: int, end: int) -> bytes:
    raise PeerError(f"no bytes {start}..{end}")


def test_two_that_differ_are_named_and_left_alone(loose: Base) -> None:
    trio = Trio(loose.config, loose.contents, count=2)
    path, at, _ = place_of(loose, 2)
    turn(trio.files[0], path, at + 40, 1)
    before = log_of(trio)
    trio.round()
    assert log_of(trio) == before
    [opened] = trio.scrubber.plan.open.values()
    assert "differ from the copy of n1" in opened.reason
    assert not opened.lost
    trio.close()


def test_damage_waits_for_a_node_that_has_the_bytes(trio: Trio, base: Base) -> None:
    right = log_of(trio)
    path, at, size = place_of(base, 3)
    turn(trio.files[0], path, at + size // 2, 4)
    trio.peers[0].up = trio.peers[1].up = False
    trio.round()
    [opened] = trio.scrubber.plan.open.values()
    assert opened.lost
    assert "no whole copy" in opened.reason
    trio.scrubber.close()
    trio.scrubber = trio.new_scrubber()
    trio.scrubber.load()
    assert trio.scrubber.plan.open == {opened.start: opened}
    trio.peers[1].up = True
    trio.scrubber.step()
    assert log_of(trio) != right  # not yet
    trio.clock.advance(RETRY_MS / 1000)
    trio.scrubber.step()
    assert log_of(trio) == right
    assert not trio.scrubber.plan.open


def test_nodes_whose_logs_end_earlier_mend_what_they_have(trio: Trio, base: Base) -> None:
    """As slaves do of a master that takes puts: none has all that it has, and each another part."""
    right = log_of(trio)
    path, at, size = place_of(base, 3)
    turn(trio.files[0], path, at + size // 2, 4)
    ends = sorted(end for _, end in base.spans)
    for peer, end in zip(trio.peers, (ends[6], ends[4]), strict=True):
        peer.store.confirmed.retreat(end)
    trio.round()
    assert log_of(trio) == right
    assert not trio.scrubber.plan.open
    assert trio.scrubber.counts.mended == 1


def test_damage_everywhere_is_lost_and_the_round_goes_on(trio: Trio, base: Base) -> None:
    path, at, size = place_of(base, 3)
    for files in trio.files:
        turn(files, path, at + size // 2, 4)
    other, begin, length = place_of(base, 5)
    turn(trio.files[0], other, begin + length // 2, 4)
    trio.round()
    [opened] = trio.scrubber.plan.open.values()
    assert opened.lost
    assert trio.scrubber.counts.mended == 1


def test_pages_that_cannot_be_read_are_replaced_together(trio: Trio, base: Base) -> None:
    right = log_of(trio)
    trio.store.log.mapped.release()
    for number in (1, 6, 9):
        path, at, size = place_of(base, number)
        trio.files[0].spoil(path, at + size // 2, 1)
    trio.round()
    trio.clock.advance(RETRY_MS / 1000)
    for _ in range(10):
        trio.scrubber.step()
    trio.store.reput.run_to()
    assert log_of(trio) == right
    assert not trio.store.faults
    assert not trio.scrubber.plan.open
    assert served(trio, base) == base.records


def test_a_place_that_a_reader_could_not_read_is_next(trio: Trio, base: Base) -> None:
    trio.round()
    right, rounds = log_of(trio), trio.scrubber.plan.progress.rounds
    assert trio.scrubber.step() == IDLE_S, "nothing is due"
    trio.store.log.mapped.release()
    path, at, size = place_of(base, 6)
    trio.files[0].spoil(path, at + size // 2, 1)
    assert served(trio, base) != base.records
    assert trio.store.faults
    for _ in range(10):
        trio.scrubber.step()
    assert log_of(trio) == right
    assert served(trio, base) == base.records
    assert not trio.store.faults
    assert trio.scrubber.plan.progress.rounds == rounds
    assert trio.scrubber.step() == IDLE_S


def test_a_queue_that_differs_from_its_log_is_rebuilt(trio: Trio, base: Base) -> None:
    folder = DIRECTORY / "consumequeue/orders/0"
    [name, *_] = trio.files[0].listdir(folder)
    trio.store.persist()
    turn(trio.files[0], folder / name, 6, 1)
    trio.round()
    assert trio.scrubber.counts.queues == 1
    assert served(trio, base) == base.records
    trio.round()
    assert trio.scrubber.counts.queues == 1


def test_a_queue_made_without_its_first_record_gets_it_when_the_disk_has_it_again(
    trio: Trio, base: Base
) -> None:
    """Nothing lists the damage any more: the queue begins behind a number that its log has."""
    first = decode_record(trio.store.reader.record_at(0))
    assert first.queue_offset == 0
    start, end = sorted(base.spans)[0]
    path, middle = DIRECTORY / "commitlog" / f"{0:020d}", (start + end) // 2
    trio.store.persist()
    turn(trio.files[0], path, middle, 1)
    dense = trio.store.queue_table.get(first.topic, first.queue_id)
    trio.store.queues.mark_damaged(dense, "the test says so")
    trio.store.reput.run_to()
    assert trio.store.queues.min_offset(dense) > 0
    turn(trio.files[0], path, middle, 1)
    trio.store.source.mended(start, end)
    trio.round()
    assert trio.scrubber.counts.queues == 1
    assert served(trio, base) == base.records


def test_a_log_of_another_history_says_nothing(trio: Trio, base: Base) -> None:
    path, at, size = place_of(base, -2)
    turn(trio.files[0], path, at + size // 2, 4)
    for peer in trio.peers:
        peer.store.epochs.truncate_suffix(1)
    trio.round()
    assert trio.scrubber.counts.mended == 0
    assert trio.scrubber.plan.open


def test_a_log_that_is_cut_while_it_answers_says_nothing(
    trio: Trio, base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history was compared before; what it reads then may be of a later master."""
    store = trio.peers[0].store
    start, end = sorted(base.spans)[-1]
    question = BlockQuestion(start, 0, end, b"", store.log_identity.history)
    assert answer(store, question).state is CopyState.WHOLE
    read = LogBlocks.read

    def cut_and_read(blocks: LogBlocks, offset: int, size: int) -> bytes:
        store.truncate(start)
        store.put(batch_of([Put(topic="orders", body=b"." * 400)]))
        store.flush()
        return read(blocks, offset, size)

    monkeypatch.setattr(LogBlocks, "read", cut_and_read)
    assert answer(store, question).state is CopyState.ABSENT


def test_a_damaged_note_begins_again(trio: Trio) -> None:
    trio.round()
    trio.scrubber.close()
    path = OWN / "scrub.json"
    document = json.loads(trio.files[0].read_file(path).splitlines()[1])
    assert document["rounds"] == 1
    turn(trio.files[0], path, 20, 1)
    again = trio.new_scrubber()
    again.load()
    assert again.plan.progress.rounds == 0


def test_the_rate_counts_bytes_and_records(trio: Trio, base: Base) -> None:
    trio.scrubber = Scrubber(
        trio.store, lambda: (), OWN / "scrub.json", bytes_per_s=1_000, interval_ms=DAY
    )
    trio.scrubber.begin_round()
    waited = 0.0
    while trio.scrubber.plan.progress.rounds == 0:
        waited += (rest := trio.scrubber.step())
        trio.clock.advance(rest)
    counted = trio.store.confirmed.value + RECORD_COST * len(base.records)
    blanks = counted + 2 * RECORD_COST
    assert counted / 1_000 - 1 <= waited <= blanks / 1_000 + 1


def test_a_block_that_takes_much_processor_time_counts_for_more_bytes(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records in thousands of queues: each queue is a file to be opened."""
    trio.scrubber = Scrubber(
        trio.store, lambda: (), OWN / "scrub.json", bytes_per_s=1_000_000, interval_ms=DAY
    )
    compare = trio.store.reput.compare

    def long_compare(*arguments: Any, **named: Any) -> set[int]:
        trio.clock.work(0.5)
        return compare(*arguments, **named)

    monkeypatch.setattr(trio.store.reput, "compare", long_compare)
    trio.scrubber.begin_round()
    assert trio.scrubber.step() >= 0.5 * BYTES_PER_WORK_S / 1_000_000 - 2

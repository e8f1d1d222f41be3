"""Every byte of a small store of a cluster of three turned, one at a time, on one node while it
runs: scrub repairs it from the others, byte for byte, and nothing wrong is served meanwhile.

Here a sample of the bytes; all of them with TANDEMLOG_EVERY_BYTE=1 on this file.

"Nothing wrong" holds for a store with `property_crc`, whose records carry a CRC of all their bytes:
each read checks it. Without it a byte that no CRC covers (a time, an address, a property) is served
as it is on the disk until the scrub has looked at its block; the last test says exactly that. In
both it is found, and mended by the majority.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from fakes.flipped_stores import Base, Place, base_store
from fakes.scrubbed_trio import Trio, turn
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.record.record import decode_record
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.reads.results import NoRecordError

ASKED = os.environ.get("TANDEMLOG_EVERY_BYTE")
# all bytes take ten minutes of one processor
pytestmark = pytest.mark.timeout(7_200 if ASKED else 600)
EVERY = int(ASKED or "0") or 53
LOG = ("commitlog",)
QUEUES = ("consumequeue",)


def turned(base: Base, folders: tuple[str, ...]) -> Iterator[tuple[Place, int]]:
    for number, place in enumerate(base.places(*folders)):
        if number % EVERY == EVERY // 2:
            nth = number // EVERY
            yield place, 0xFF if nth % 3 == 0 else 1 << nth % 8


def everything(trio: Trio, base: Base) -> set[bytes]:
    """All that node 0 serves now, by queue, by key and by position; what a client refuses by the
    CRC of the body is left out."""
    reader, found = trio.store.reader, set[bytes]()

    def at(offset: int) -> Sequence[bytes]:
        return [reader.record_at(offset)]

    def of(topic: str, queue_id: int, number: int) -> Sequence[bytes]:
        return [bytes(reader.get(topic, queue_id, number, 1, 1 << 20).records)]

    def named(topic: str, key: str) -> Sequence[bytes]:
        return reader.query_key(topic, key, max_messages=0).records

    asked: list[Callable[[], Sequence[bytes]]] = [
        *(partial(at, offset) for offset in base.offsets.values()),
        *(partial(of, *where) for where in base.records),
        *(partial(named, topic, f"k{n}") for topic in ("orders", "audit", "x") for n in range(3)),
    ]
    for ask in asked:
        try:
            records = ask()
        except (StoreError, NoRecordError):
            continue
        for data in records:
            try:
                decode_record(data)
            except CorruptRecordError:
                continue
            found.add(data)
    return found


@pytest.mark.parametrize("folders", [LOG, QUEUES], ids=["log", "queues"])
def test_every_byte_is_mended_and_nothing_wrong_is_served(folders: tuple[str, ...]) -> None:
    base = base_store(clean=True, property_crc=True)
    trio, right = Trio(base.config, base.contents), set(base.records.values())
    assert everything(trio, base) == right
    places = 0
    for (path, at, count), mask in turned(base, folders):
        places += 1
        turn(trio.files[0], path, at, mask, count)
        assert everything(trio, base) <= right, (path, at, mask)
        trio.store.reput.run_to()
        trio.round()
        assert everything(trio, base) == right, (path, at, mask)
        if folders is QUEUES:
            trio.scrubber._rebuilt.clear()
            trio.store.persist()
        log_end = trio.store.log.wrote.value
        if folders is LOG and int(path.name) + at < log_end:
            assert trio.files[0].read_file(path) == base.contents[path], (path, at, mask)
    assert places > 10
    trio.close()


def test_without_crcs_of_whole_records_the_log_is_mended_all_the_same() -> None:
    """What a read gives until then differs from what was stored in fields that no CRC covers, and
    in nothing else: never the body."""
    base = base_store(clean=True)
    trio = Trio(base.config, base.contents)
    bodies = {decode_record(each).body for each in base.records.values()}
    altered = 0
    for (path, at, count), mask in turned(base, LOG):
        if int(path.name) + at >= trio.store.log.wrote.value:
            continue
        turn(trio.files[0], path, at, mask, count)
        found = everything(trio, base)
        altered += not found <= set(base.records.values())
        assert {decode_record(each).body for each in found} <= bodies
        trio.store.reput.run_to()
        trio.round()
        assert trio.files[0].read_file(path) == base.contents[path], (path, at, mask)
        assert everything(trio, base) == set(base.records.values()), (path, at, mask)
    assert altered
    trio.close()

"""A store that was damaged in several places, opened, read, verified; what it may do about it.

    picture of a store ──damages──▶ a disk ──open, read, verify, put──▶ typed errors only,
                                                                        never other bytes

Where a message is found by (topic, queue, queue offset) it is the one that was put there, byte for
byte; it may be missing, with an error or a status that says so. The store is one that was closed,
and one whose process was killed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from signal import ITIMER_REAL, SIGALRM, setitimer, signal
from typing import Any

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, DIRECTORY, Bench, records_of
from fuzz.situations import Picture, picture_of, restore
from tandemlog.format.errors import FormatError
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.format.record.record import Record
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import MetadataError
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.tools.verify import verify

STORES = ("closed", "killed")
STORE_CONFIG = replace(CONFIG, flush=FlushMode.SYNC)
QUEUES = [("T", queue) for queue in range(4)] + [("U", 0)]
TYPED = (StoreError, FormatError, MetadataError, OSError)
HANG_S = 30
SECTOR = 512


@dataclass(frozen=True)
class Store:
    """The files of a store, and every record that it holds by (topic, queue, queue offset)."""

    picture: Picture
    records: dict[tuple[str, int, int], Record]
    ends: dict[tuple[str, int], int]


class HangError(Exception):
    """Something takes longer than HANG_S."""


@cache
def a_store(name: str) -> Store:
    """One of STORES: several log, queue and index files, producers, groups, offsets."""
    bench = Bench(STORE_CONFIG, topics=("T", "U"))
    for number in range(24):
        keys = b"KEYS\x01key%d\x02TAGS\x01tag%d\x02" % (number, number % 3)
        bodies = [b"%d-%d" % (number, each) for each in range(8)]
        puts = [Put("T", each % 4, body, keys) for each, body in enumerate(bodies[:7])]
        puts.append(Put("U", 0, bodies[7], keys))
        bench.clock.advance(1.0)
        bench.store.put(batch_of(puts))
        if number % 6 == 0:
            bench.put_marked(ProducerMark("p", 0, number // 6, 0, 2), 2)
        if number % 10 == 9:
            bench.settle()
            bench.store.persist()
    bench.store.groups.ensure("g", bench.clock.now_ms())
    bench.store.consumer_offsets.commit("g", "T", 0, 3)
    bench.settle()
    records = dict(_records(bench.store))
    ends = {queue: 1 + max(n for t, q, n in records if (t, q) == queue) for queue in QUEUES}
    if name == "closed":
        bench.store.close()
    else:
        bench.store.persist()
        bench._abandon()
        bench.files.kill()
    return Store(picture_of(bench.files), records, ends)


def damages(random: Random, store: Store) -> list[dict[str, Any]]:
    """One to four things that happen to a disk."""
    paths = sorted(store.picture)
    found = []
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        path = random.choice(paths)
        size = len(store.picture[path])
        at = random.randrange(size) if size else 0
        kind = random.choice(
            ("flip", "flip", "flip", "zeros", "garbage", "cut", "swap", "grow", "remove", "empty",
             "directory", "exchange", "number")
        )  # fmt: skip
        damage: dict[str, Any] = {"what": kind, "file": str(path.relative_to(DIRECTORY)), "at": at}
        if kind == "flip":
            damage["bit"] = random.randrange(8)
        elif kind in ("zeros", "swap"):
            damage["size"] = random.choice((1, 4, 20, SECTOR, 4096))
        elif kind in ("garbage", "grow"):
            damage["bytes"] = random.randbytes(random.choice((1, 4, 20, 100, SECTOR))).hex()
        elif kind == "number":
            value = random.choice((0, 1, 2**15, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1, 2**63))
            damage["bytes"] = value.to_bytes(8, "big").hex()
            damage["at"] = at - at % 4
        elif kind == "exchange":
            damage["with"] = str(random.choice(paths).relative_to(DIRECTORY))
        found.append(damage)
    return found


def apply(picture: Picture, what: list[dict[str, Any]]) -> tuple[Picture, list[Path]]:
    """The damaged files, and the paths that are directories now."""
    files = {path: bytearray(data) for path, data in picture.items()}
    directories = []
    for damage in what:
        path = DIRECTORY / damage["file"]
        data = files.get(path)
        if data is None:
            continue
        kind, at = damage["what"], damage["at"]
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << damage["bit"]
        elif kind == "zeros":
            end = max(at, min(at + damage["size"], len(data)))
            data[at:end] = bytes(end - at)
        elif kind in ("garbage", "number"):
            piece = bytes.fromhex(damage["bytes"])[: max(0, len(data) - at)]
            data[at : at + len(piece)] = piece
        elif kind == "cut":
            del data[at:]
        elif kind == "grow":
            data += bytes.fromhex(damage["bytes"])
        elif kind == "swap":
            size = damage["size"]
            first, second = data[:size], data[at : at + size]
            data[at : at + len(second)] = first[: len(second)]
            data[: len(second)] = second
        elif kind == "empty":
            del data[:]
        elif kind == "exchange" and DIRECTORY / damage["with"] in files:
            other = DIRECTORY / damage["with"]
            files[path], files[other] = files[other], files[path]
        elif kind in ("remove", "directory"):
            del files[path]
            if kind == "directory":
                directories.append(path)
    return {path: bytes(data) for path, data in files.items()}, directories


def suffer(name: str, what: list[dict[str, Any]]) -> str:
    """What goes wrong with a store that was damaged so; empty where nothing does."""
    store = a_store(name)
    picture, directories = apply(store.picture, what)
    files = MemoryFiles()
    restore(files, picture)
    for path in directories:
        files.make_directory(path)
    step = "verify"
    try:
        with _no_hang():
            _tolerant(lambda: verify(STORE_CONFIG, files))
            step = "open"
            bench = _tolerant(lambda: Bench(STORE_CONFIG, files, topics=()))
            if bench is None:
                return ""
            bench.clock.advance(1_000_000)
            for step in ("read", "put", "read again", "close"):
                wrong = _tolerant(partial(_step, bench, store, step))
                if wrong:
                    return f"{step}: {wrong}"
    except Exception as problem:
        return f"{step} ends with {problem!r}"
    return f"{files.open_handles} files are left open" if files.open_handles else ""


def _step(bench: Bench, store: Store, step: str) -> str:
    if step == "put":
        puts = [Put("T", queue, b"new") for queue in range(4)]
        bench.store.put(batch_of(puts))
        bench.store.flush()
        bench.store.reput.run_to()
    elif step == "close":
        bench.store.close()
    else:
        return _wrong_bytes(bench.store, store) or _look(bench)
    return ""


def _wrong_bytes(opened: MessageStore, store: Store) -> str:
    """A body has a CRC, and a record says whose it is: neither may be another's. Times, hosts and
    flags of a record have nothing that would tell."""
    for at, record in _records(opened):
        held = store.records.get(at)
        if record.body == b"new":
            continue
        if (record.topic, record.queue_id) != at[:2]:
            return f"a record of {record.topic}/{record.queue_id} is served as {at}"
        if held is not None and held.body != record.body:
            return f"another body is served as {at}"
    return ""


def _look(bench: Bench) -> str:
    """The other ways to a message: each finds what it asks for, or says why not."""
    store = bench.store
    for number in (0, 11, 23):
        found = _tolerant(partial(store.reader.query_key, "T", f"key{number}"))
        for record in found.records if found is not None else ():
            if b"key%d" % number not in record:
                return f"a query for key{number} finds a record without it"
    for topic, queue in QUEUES:
        for boundary in Boundary:
            _tolerant(partial(store.reader.search_offset, topic, queue, 5, boundary))
    _tolerant(lambda: store.reader.ranges(()))
    for offset in (0, 1, 8192, store.log.wrote.value - 1, 1 << 40):
        _tolerant(partial(store.reader.record_at, offset))
    store.producers.describe("p")
    store.consumer_offsets.fetch("g", ())
    return ""


def _records(store: MessageStore) -> Iterator[tuple[tuple[str, int, int], Record]]:
    """Every message that queues serve, with the queue and number that it is served as."""
    for topic, queue in QUEUES:
        at, rounds = 0, 0
        while rounds < 1_000:
            rounds += 1
            try:
                result = store.reader.get(topic, queue, at, 0, 4096)
            except TYPED:
                break
            if not result.count and result.next_offset <= at:
                break
            for record in records_of(result):
                yield (topic, queue, record.queue_offset), record
            at = result.next_offset


def _tolerant(call: Any) -> Any:
    try:
        return call()
    except TYPED:
        return None


@contextmanager
def _no_hang() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise HangError(f"longer than {HANG_S} s")

    held = signal(SIGALRM, ring)
    setitimer(ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        setitimer(ITIMER_REAL, 0)
        signal(SIGALRM, held)

"""A node's log in the world of parked sends: a real store, and the bytes that it gets of a master.

    master    wrote ─▶ flushed ─▶ confirmed: on all of the set in force     ─▶ dispatched
    slave     epochs of the master ─▶ where its log parts from the master's ─▶ cut ─▶ bytes ─▶ fsync

The set in force is the one that the coordinator has, and the one that is being asked for. Who gives
no sign for DEAD_S is asked out of it; who holds all, into it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from sim.parking_network import WorldClock
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import ConfirmSource, FlushMode, StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig

TOPIC = "t"
QUEUES = 4
CONFIG = StoreConfig(
    directory=Path("/store"),
    commit_log_file_size=1 << 16,
    queue_file_size=4_000,
    index_slots=512,
    index_entries=4_096,
    flush=FlushMode.SYNC,
    confirm=ConfirmSource.REPLICATION,
)


@dataclass
class Disk:
    """What is left of a node that is killed. `epoch` is the newest that it has accepted."""

    files: MemoryFiles
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """What a master sends: its epochs, and log bytes that follow each other, none over the begin of
    an epoch. `start`: of the first, None as long as it does not know where its slave is."""

    leader: str
    epoch: int
    entries: Sequence[EpochEntry]
    start: int | None
    pieces: Sequence[bytes]
    confirmed: int


def opened(disk: Disk, clock: WorldClock, host: str) -> MessageStore:
    config = replace(CONFIG, store_host=host)
    store = MessageStore.open(config, files=disk.files, clock=clock)
    if store.topics.get(TOPIC) is None:
        store.topics.create(TopicConfig(TOPIC, QUEUES, QUEUES), clock.now_ms())
    store.become_slave()
    return store


def pieces(store: MessageStore, start: int, entries: Sequence[EpochEntry]) -> list[bytes]:
    """The log from `start` on, cut where epochs begin."""
    found, log = [], store.log
    begins = [each.start_offset for each in entries]
    while start < log.wrote.value:
        size = min([each - start for each in begins if each > start], default=log.file_size)
        piece = bytes(log.read(start, min(size, log.file_size)))
        found.append(piece)
        start += len(piece)
    return found


def common_end(store: MessageStore, entries: Sequence[EpochEntry]) -> int:
    """Up to where this log is the same as that of the master of the last of `entries`."""
    ends = {each.epoch: following.start_offset for each, following in pairwise(entries)}
    upper = store.log.wrote.value
    for entry in reversed(store.epochs.table.entries):
        if entry.epoch == entries[-1].epoch:
            return upper  # all of it came from this master
        if entry.epoch in ends:
            return min(upper, ends[entry.epoch])
        upper = min(upper, entry.start_offset)
    return 0


def take(store: MessageStore, sent: Sent) -> None:
    """Append what is new in it, behind the same log."""
    at = sent.start
    if at is None:
        return
    for piece in sent.pieces:
        end = store.log.wrote.value
        if at > end:
            return
        _begin_epochs(store, sent.entries)
        if at + len(piece) > end:
            store.append_raw(end, piece[end - at :], whole=True)
        at += len(piece)
    _begin_epochs(store, sent.entries)


def _begin_epochs(store: MessageStore, entries: Sequence[EpochEntry]) -> None:
    last = store.epochs.table.last
    newest = 0 if last is None else last.epoch
    for entry in entries:
        if entry.epoch > newest and entry.start_offset == store.log.wrote.value:
            store.epochs.append(entry)

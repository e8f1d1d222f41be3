"""A master whose log begins later than its queues and producers, and slaves that copy it."""

from dataclasses import replace

from fakes.stores import CONFIG, Bench
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.retention.cleaner import Cleaner

REPLICATED = replace(CONFIG, confirm=ConfirmSource.REPLICATION)


def drop_all(bench: Bench) -> None:
    """Retention: every file but the newest."""
    cleaner = Cleaner(bench.store._parts, sleep=lambda _: None)
    cleaner.drop_before(bench.store.log.files[-1].base)


def confirm_all(bench: Bench) -> None:
    bench.store.flush()
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.reput.run_to()


def joined(master: Bench, slave: Bench | None = None) -> Bench:
    """A slave that begins with an empty log, as a stream does it."""
    slave = slave if slave is not None else Bench(REPLICATED, topics=())
    begin(master, slave)
    copy(master, slave)
    return slave


def begin(master: Bench, slave: Bench) -> None:
    start = master.store.log.min_offset
    assert slave.store.needs_prologue
    if slave.store.log.wrote.value != start:
        slave.store.reset(start)
    slave.store.take_prologue(master.store.prologue(start))
    slave.store.topics.replace_from_json(master.store.topics.to_json())


def copy(master: Bench, slave: Bench, end: int | None = None) -> None:
    log, position = master.store.log, slave.store.log.wrote.value
    end = log.committed.value if end is None else end
    if not slave.store.epochs.table.entries:
        slave.store.epochs.append(EpochEntry(1, 0))
    while position < end:
        piece = bytes(log.read(position, min(3000, end - position)))
        slave.store.append_raw(position, piece)
        position += len(piece)
    confirm_all(slave)

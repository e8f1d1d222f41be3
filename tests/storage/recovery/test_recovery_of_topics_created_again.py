"""A broker's topic that was deleted and created again: the log has each number twice.

log     q0: 0 1 .. 11 | deleted | 0 1 .. 9       RocketMQ's queue has the later ones alone
"""

import json
from pathlib import Path

import numpy as np
import pytest

from fakes.log_builder import LogBuilder, flip, overwrite
from fakes.stores import records_of
from tandemlog.format.files.epochs import EpochTable
from tandemlog.format.files.queue_unit import UNIT_DTYPE, tags_code
from tandemlog.format.record.record import Record
from tandemlog_server.storage.config import ConfirmSource, StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.tools.rebuild import rebuild
from tandemlog_server.storage.tools.recover import recover
from tandemlog_server.storage.tools.verify import verify

DELETED, LIVE = 12, 10
QUEUE_FILE = 8 * 20


def write_queue(store: Path, queue_id: int, records: list[Record], topic: str = "Orders") -> None:
    """The queue's files as a broker has them."""
    folder = store / "consumequeue" / topic / str(queue_id)
    folder.mkdir(parents=True, exist_ok=True)
    units = np.zeros(-(-len(records) // 8) * 8, UNIT_DTYPE)
    for number, record in enumerate(records):
        code = tags_code(record.topic, record.tags)
        units[number] = (record.physical_offset, record.size, code)
    for base in range(0, len(units), 8):
        (folder / f"{base * 20:020d}").write_bytes(units[base : base + 8].tobytes())


def queue_bytes(store: Path) -> dict[str, bytes]:
    root = store / "consumequeue"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def settings(store: Path, **more: object) -> StoreConfig:
    return StoreConfig(store, queue_file_size=QUEUE_FILE, index_slots=10, index_entries=400, **more)  # type: ignore[arg-type]


class Again:
    """A clean store of a broker in `folder`; `log` can be continued before `write`."""

    def __init__(self, folder: Path, live: int = LIVE) -> None:
        self.log = LogBuilder(folder, file_size=4096)
        self.store = folder
        self.old = [self.log.put(body=b"deleted %d" % n) for n in range(DELETED)]
        self.other = [self.log.put(queue_id=1, body=b"gone %d" % n) for n in range(3)]
        self.kept = [self.log.put("Kept", 0, b"kept %d" % n) for n in range(5)]
        self.live = [self.log.put(body=b"live %d" % n, queue_offset=n) for n in range(live)]

    def write(self) -> "Again":
        self.log.write()
        write_queue(self.store, 0, self.live)
        write_queue(self.store, 0, self.kept, "Kept")
        return self

    def bodies(self, queue_id: int = 0, **more: object) -> list[bytes]:
        """What the store serves when it is opened."""
        store = MessageStore.open(settings(self.store, **more))
        try:
            return served(store, queue_id)
        finally:
            store.close()


def served(store: MessageStore, queue_id: int = 0) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        found = store.reader.get("Orders", queue_id, len(bodies), 100, 1 << 20)
        if not found.count:
            return bodies
        bodies += [record.body for record in records_of(found)]


def live_bodies(count: int = LIVE) -> list[bytes]:
    return [b"live %d" % n for n in range(count)]


@pytest.mark.parametrize("crashed", [False, True])
def test_opening_leaves_the_brokers_queues_as_they_are(tmp_path: Path, crashed: bool) -> None:
    made = Again(tmp_path).write()
    if crashed:
        (tmp_path / "abort").touch()
    before = queue_bytes(tmp_path)
    report = recover(settings(tmp_path))
    assert report.queues_rebuilt == {}
    assert queue_bytes(tmp_path) == before
    assert any("Orders/1" in note for note in report.notes)
    assert made.bodies() == live_bodies()
    assert queue_bytes(tmp_path) == before
    report2 = verify(settings(tmp_path))
    assert [str(fault) for fault in report2.faults] == []


@pytest.mark.parametrize("live", [1, 2, LIVE, DELETED, DELETED + 5])
def test_the_later_record_of_a_number_wins_in_a_rebuild(tmp_path: Path, live: int) -> None:
    made = Again(tmp_path, live).write()
    before = queue_bytes(tmp_path)
    rebuild(settings(tmp_path))
    after = queue_bytes(tmp_path)
    assert {name: after[name] for name in before} == before
    assert made.bodies() == live_bodies(live)


@pytest.mark.parametrize("step", [137, 4096])
def test_a_follower_sees_the_queue_begin_again(tmp_path: Path, step: int) -> None:
    made = Again(tmp_path / "broker")
    made.log.write()
    config = settings(
        tmp_path / "node", commit_log_file_size=4096, confirm=ConfirmSource.REPLICATION
    )
    store = MessageStore.open(config)
    position = 0
    while position < made.log.end:
        path = made.log.path(position)
        size = min(step, made.log.end - position, 4096 - position % 4096)
        store.append_raw(position, path.read_bytes()[position % 4096 :][:size])
        position += size
        store.flush()
        store.advance_confirmed(position)
        store.reput.run_to()
    assert served(store) == live_bodies()
    assert store.queues.min_offset(store.queue_table.get("Orders", 0)) == 0
    store.become_master(1)
    assert int(store.queue_table.next_queue_offsets[store.queue_table.get("Orders", 0)]) == LIVE
    store.close()
    report = verify(settings(tmp_path / "node"))
    assert [str(fault) for fault in report.faults] == []
    assert any("began again" in note for note in report.notes)


def test_a_queue_of_which_files_were_removed_goes_on_from_there(tmp_path: Path) -> None:
    """An operator removed a queue's last file: RocketMQ numbers from its begin."""
    log = LogBuilder(tmp_path, file_size=4096)
    old = [log.put(body=b"old %d" % n) for n in range(DELETED)]
    new = [log.put(body=b"new %d" % n, queue_offset=8 + n) for n in range(3)]
    log.write()
    write_queue(tmp_path, 0, old[:8] + new)
    before = queue_bytes(tmp_path)
    recover(settings(tmp_path))
    assert queue_bytes(tmp_path) == before
    rebuild(settings(tmp_path))
    assert queue_bytes(tmp_path) == before


def test_a_unit_that_leads_to_another_record_is_not_taken_for_a_later_one(tmp_path: Path) -> None:
    made = Again(tmp_path).write()
    right = queue_bytes(tmp_path)
    wrong = [*made.live[:4], made.live[6], *made.live[5:]]
    write_queue(tmp_path, 0, wrong)
    report = recover(settings(tmp_path))
    assert "Orders/0" in report.queues_rebuilt
    assert (
        queue_bytes(tmp_path)["Orders/0/00000000000000000000"]
        == right["Orders/0/00000000000000000000"]
    )


@pytest.mark.parametrize("last", [False, True])
def test_a_number_that_is_damaged_begins_nothing(tmp_path: Path, last: bool) -> None:
    log = LogBuilder(tmp_path, file_size=8192)
    records = [log.put(body=b"%d" % n) for n in range(10 if last else 14)]
    log.write()
    overwrite(log, records[9].physical_offset + 20, (3).to_bytes(8))
    recover(settings(tmp_path))
    store = MessageStore.open(settings(tmp_path))
    bodies = served(store)
    store.close()
    assert bodies[:9] == [b"%d" % n for n in range(9)]


def test_in_a_log_of_ours_numbers_never_go_back(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path, file_size=8192)
    records = [log.put(body=b"%d" % n) for n in range(9)]
    log.write()
    (tmp_path / "epochFileCheckpoint").write_bytes(EpochTable().append(1, 0).encode())
    flip(log, records[8].physical_offset + 27, 3)
    recover(settings(tmp_path))
    store = MessageStore.open(settings(tmp_path))
    assert served(store) == [b"%d" % n for n in range(8)]
    store.close()


def test_a_topic_that_stays_deleted_gets_no_queues_back(tmp_path: Path) -> None:
    made = Again(tmp_path)
    made.log.put("Dropped", 0, b"deleted")
    made.write()
    table = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for name in ("Orders", "Kept")
    }
    topics = {"topicConfigTable": table, "dataVersion": {"counter": 1}}
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps(topics))
    before = queue_bytes(tmp_path)
    before_open = verify(settings(tmp_path, index_enabled=False))
    assert [str(fault) for fault in before_open.faults] == []
    report = recover(settings(tmp_path))
    assert any("Dropped/0" in note for note in report.notes)
    assert queue_bytes(tmp_path) == before
    rebuild(settings(tmp_path))
    assert not any(name.startswith("Dropped") for name in queue_bytes(tmp_path))

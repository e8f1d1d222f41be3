"""The committed offsets of consumer groups: `config/consumerOffset.json`, in RocketMQ's format.

    "offsetTable": {"<topic>@<group>": {<queue id>: <next queue offset to consume>, ...}, ...}

In memory, persisted at an interval and at close, replicated whole. An offset that moves forward may
be lost with the memory: its messages come again. One that is new, moves back or is dropped may not:
without it the group would begin where its program says, or continue where it was, and skip
messages. So a slave has these durable before it acknowledges a table, and a master saves them at
once.

    the log    COMMIT of a transaction: g t/0 40    ──▶ floor 40: the table never says less
    the table  g t/0 ..38..40..55                       until the log itself sets it lower

Offsets that a transaction has set stand in the log (transaction_fold.py), where every node finds
them in their order. An older table of another node does not take them back: what the group has
read would be transformed a second time.

The other offsets lie outside the log: after a truncation of the log they are clamped to what the
queues still hold, or consumers would wait for messages with offsets that new messages are about to
get.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tandemlog.format.transaction.decision import NO_OFFSET, GroupOffset

from ..disk.file_system import FileSystem
from ..errors import CorruptStoreError
from .json_file import VERSION, JsonFile, integer, parse, table
from .topics import MetadataError

OFFSETS = "offsetTable"
GROUP_TOPICS = "groupTopicMap"
_SEPARATOR = "@"

_Table: TypeAlias = dict[tuple[str, str], dict[int, int]]
"""(topic, group) -> queue id -> offset."""


@dataclass(frozen=True, slots=True)
class ConsumerOffset:
    """The queue offset that `group` consumes next of a queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


class ConsumerOffsets:
    """All groups' offsets. Any thread may call; one lock guards the table."""

    def __init__(self, path: Path, files: FileSystem, *, max_rows: int = 1_000_000) -> None:
        self._file = JsonFile(path, files)
        self._max_rows = max_rows
        self._row_count = 0
        self._lock = threading.Lock()
        self._table: _Table = {}
        self._floors: _Table = {}
        self._changes = 0
        self._saved_changes = 0
        # whether a change that must not be lost is in memory only
        self._unsafe = False
        # whether its file holds offsets
        self.on_disk = False

    def load(self) -> None:
        with self._lock:
            self._file.load()
            self._take(_decode(table(self._file.document, OFFSETS)))
            self.on_disk = bool(self._table)

    @property
    def found(self) -> bool:
        """Whether the file or its .bak had anything, which may be an empty table."""
        return self._file.found

    def check_found(self) -> None:
        """For a store whose groups had offsets: raises CorruptStoreError if neither the file nor
        its .bak has any, because every group would start without them."""
        if not self._file.found:
            raise CorruptStoreError(
                str(self._file.path), 0, "it and its .bak are missing or empty, but groups had "
                "committed offsets here: restore one of them from a copy of the store, or write {} "
                "into the file if all groups are to start from nothing",
            )  # fmt: skip

    @property
    def note(self) -> str:
        """What had to be repaired while loading; empty if nothing was."""
        return self._file.note

    @property
    def version(self) -> int:
        """Grows with every change since the store was opened."""
        return self._changes

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Raises MetadataError for a row above `max_rows`; those that are there can be changed. An
        offset below that of a transaction is taken for that one."""
        with self._lock:
            floor = self._floors.get((topic, group), {}).get(queue_id, 0)
            queue_offset = max(queue_offset, floor)
            offsets = self._table.get((topic, group), {})
            if queue_id not in offsets:
                self._check_room()
                self._row_count += 1
                self._table[topic, group] = offsets
            before = offsets.get(queue_id)
            if before != queue_offset:
                self._unsafe |= before is None or queue_offset < before
                offsets[queue_id] = queue_offset
                self._changes += 1

    def move_forward(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Commit an offset that is not lower than the one that is there. False, and nothing is
        done: it is the first of its queue, or moves back, or the table is being written. Waits for
        nothing, so the event loop may call it."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            offsets = self._table.get((topic, group))
            before = None if offsets is None else offsets.get(queue_id)
            if offsets is None or before is None or queue_offset < before:
                return False
            if queue_offset > before:
                offsets[queue_id] = queue_offset
                self._changes += 1
            return True
        finally:
            self._lock.release()

    def check_room(self, rows: Iterable[tuple[str, str, int]]) -> None:
        """Raises MetadataError if these rows (group, topic, queue id), which a transaction is to
        set, would be above `max_rows`."""
        with self._lock:
            more = {
                (group, topic, queue_id)
                for group, topic, queue_id in rows
                if queue_id not in self._table.get((topic, group), {})
            }
            if more:
                self._check_room(len(more))

    def drop(self, group: str) -> None:
        """Forget all offsets of `group`."""
        with self._lock:
            others = {key: rows for key, rows in self._table.items() if key[1] != group}
            if len(others) != len(self._table):
                self._take(others)
                self._changes += 1
                self._unsafe = True

    # ---- offsets of transactions, which stand in the log

    def floor(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that a transaction has set, or that was set in the log after one; None for
        none."""
        with self._lock:
            return self._floors.get((topic, group), {}).get(queue_id)

    def set_floors(self, rows: Iterable[GroupOffset]) -> None:
        """What the log says, in this order: an offset of a transaction, which moves forward, or one
        that was set by hand and counts as it is."""
        with self._lock:
            for each in rows:
                self._set_floor(each)
                self._changes += 1

    def replace_floors(self, rows: Iterable[GroupOffset]) -> None:
        """These are all that the log says."""
        with self._lock:
            self._floors = {}
            for each in rows:
                pair = (each.topic, each.group)
                self._floors.setdefault(pair, {})[each.queue_id] = each.queue_offset
            self._take(self._table)
            self._changes += 1

    def _set_floor(self, row: GroupOffset) -> None:
        pair, queue_id = (row.topic, row.group), row.queue_id
        floors, offsets = self._floors.setdefault(pair, {}), self._table.setdefault(pair, {})
        floor, before = floors.pop(queue_id, None), offsets.pop(queue_id, None)
        if row.queue_offset != NO_OFFSET:
            floors[queue_id] = row.queue_offset
            by_hand = floor is not None and row.queue_offset < floor
            keep = 0 if before is None or by_hand else before
            offsets[queue_id] = max(keep, row.queue_offset)
        if before is not None:
            # a table that says the same would bring nothing new, and not be saved for it
            self._unsafe |= offsets.get(queue_id, NO_OFFSET) < before
        self._row_count += (queue_id in offsets) - (before is not None)
        if not floors:
            del self._floors[pair]
        if not offsets:
            del self._table[pair]

    # ---- looking

    def fetch(self, group: str, topics: Sequence[str] = ()) -> list[ConsumerOffset]:
        """The committed offsets of `group`; no topics means all of its topics."""
        wanted = set(topics)
        with self._lock:
            return [
                ConsumerOffset(group, topic, queue_id, offset)
                for topic, offsets in sorted(
                    (topic, offsets)
                    for (topic, each), offsets in self._table.items()
                    if each == group and (not wanted or topic in wanted)
                )
                for queue_id, offset in sorted(offsets.items())
            ]

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        with self._lock:
            return self._table.get((topic, group), {}).get(queue_id)

    def groups(self) -> list[str]:
        """Every group that has committed an offset."""
        with self._lock:
            return sorted({group for _, group in self._table})

    def has_group(self, group: str) -> bool:
        """Whether the group has committed an offset."""
        with self._lock:
            return any(each == group for _, each in self._table)

    def pairs(self) -> list[tuple[str, str]]:
        """Every (topic, group) with an offset."""
        with self._lock:
            return list(self._table)

    def of_pair(self, topic: str, group: str) -> dict[int, int]:
        """Queue id -> offset, a copy."""
        with self._lock:
            return dict(self._table.get((topic, group), ()))

    def clamp(self, max_offset: Callable[[str, int], int | None]) -> list[ConsumerOffset]:
        """Lower what lies above `max_offset(topic, queue_id)`; returns the offsets before.

        A queue for which that is None does not exist and is left alone: its topic may have been
        deleted, or the queue has not had its first message yet.
        """
        changed = []
        with self._lock:
            for topic, group, queue_id, offset in list(self._rows()):
                limit = max_offset(topic, queue_id)
                if limit is not None and offset > limit:
                    self._table[topic, group][queue_id] = limit
                    self._unsafe = True
                    changed.append(ConsumerOffset(group, topic, queue_id, offset))
            self._changes += bool(changed)
        return changed

    def save(self, now_ms: int) -> bool:
        """Persist what has changed since the last time; False if nothing had."""
        with self._lock:
            if self._changes == self._saved_changes:
                return False
            self._update_document()
            self._file.replace(self._file.with_next_version(now_ms))
            self._saved()
            return True

    def save_unsafe(self, now_ms: int) -> None:
        """`save`, if a change that must not be lost is in memory only."""
        with self._lock:
            unsafe = self._unsafe
        if unsafe:
            self.save(now_ms)

    def to_json(self) -> bytes:
        """The whole table in the form of its file, for a slave."""
        with self._lock:
            self._update_document()
            return self._file.encoded()

    def replace_from_json(self, data: bytes) -> None:
        """Take a master's table in place of the own one; durable on return, except for offsets
        that only moved forward. Raises FormatError, and what the disk does, changing nothing."""
        document = parse(data)
        decoded = _decode(table(document, OFFSETS))
        with self._lock:
            decoded, raised = self._raised(decoded)
            durably = self._unsafe or not _only_forward(self._table, decoded)
            if durably:
                self._file.replace(document)
            else:
                self._file.document = document
            self._take(decoded)
            self._changes += 1
            if durably:
                self._saved()
                self._changes += raised

    def take_rows(
        self, rows: dict[str, object], before: frozenset[tuple[str, str]]
    ) -> frozenset[tuple[str, str]]:
        """Put the rows of another table, in the form of its file, in place of the own ones of the
        same (topic, group), and drop those of `before` that it no longer has. Returns its pairs."""
        rows_taken = _decode(rows)
        with self._lock:
            dropped = before.difference(rows_taken)
            others = {pair: offsets for pair, offsets in self._table.items() if pair not in dropped}
            changed, _ = self._raised({**others, **rows_taken})
            if changed != self._table:
                self._unsafe |= not _only_forward(self._table, changed)
                self._take(changed)
                self._changes += 1
        return frozenset(rows_taken)

    def _saved(self) -> None:
        self._saved_changes, self._unsafe = self._changes, False
        self.on_disk = bool(self._table)

    def _raised(self, rows: _Table) -> tuple[_Table, bool]:
        """The rows, none below its floor; and whether one was."""
        raised = {}
        for pair, floors in self._floors.items():
            offsets = rows.get(pair, {})
            low = {each: at for each, at in floors.items() if offsets.get(each, -1) < at}
            if low:
                raised[pair] = {**offsets, **low}
        return ({**rows, **raised}, True) if raised else (rows, False)

    def _take(self, rows: _Table) -> None:
        self._table, _ = self._raised(rows)
        self._row_count = sum(map(len, self._table.values()))

    def _check_room(self, more: int = 1) -> None:
        if self._row_count + more > self._max_rows:
            raise MetadataError(
                "INVALID_ARGUMENT",
                "offsets",
                f"there are {self._row_count} consumer offsets, max_offset_rows is "
                f"{self._max_rows}: raise it, or use a group that is there",
            )

    def _rows(self) -> Iterator[tuple[str, str, int, int]]:
        for (topic, group), offsets in self._table.items():
            for queue_id, offset in offsets.items():
                yield topic, group, queue_id, offset

    def _update_document(self) -> None:
        """Caller holds the lock. The members in RocketMQ's order, which is the alphabet's."""
        document = {
            VERSION: {"counter": 0, "stateVersion": 0, "timestamp": 0},
            **self._file.document,
            GROUP_TOPICS: _group_topics(self._table),
            OFFSETS: {
                f"{topic}{_SEPARATOR}{group}": dict(sorted(offsets.items()))
                for (topic, group), offsets in self._table.items()
            },
        }
        self._file.document = dict(sorted(document.items()))


def _only_forward(before: _Table, after: _Table) -> bool:
    """Whether both have offsets of the same queues, and none went back."""
    if before.keys() != after.keys():
        return False
    for pair, offsets in after.items():
        earlier = before[pair]
        if earlier != offsets and (
            earlier.keys() != offsets.keys()
            or any(offsets[each] < earlier[each] for each in earlier)
        ):
            return False
    return True


def _decode(rows: dict[str, object]) -> _Table:
    decoded = {}
    for name, offsets in rows.items():
        topic, separator, group = name.rpartition(_SEPARATOR)
        if separator and isinstance(offsets, dict):
            decoded[topic, group] = {
                integer(queue_id, 0): integer(offset, 0) for queue_id, offset in offsets.items()
            }
    return decoded


def _group_topics(keys: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {}
    for topic, group in keys:
        topics.setdefault(group, []).append(topic)
    return topics

"""Units that do not simply continue their queue, and queues that are not whole.

    a number in the log                      the queue
    below its end                            has the same unit there, or one of a later record, or
                                             begins again with it, or is damaged
    above its end                            is damaged: units are missing
    of the first record of a queue           begins there
    of a pre-blank unit                      drops that unit: the log is right

RocketMQ deletes a queue's files with its topic and counts from 0 when the topic is created again.
So a broker's log can have a number twice, and the later record is the live one: a record behind all
that the queue has, with a number below its end, takes that place, and what was there and after it
is gone (queue_numbers.py). Where a store of a broker is opened, its queue may be the
later one already: the unit is right if its record agrees. In a log of ours numbers never go back;
`records` knows whose it is.

A damaged queue takes no units and is rebuilt from the log: other duplicate numbers are taken once,
and missing numbers become pre-blank units. It then ends at least where it did before, because its
floor (queue_floors.py) is noted when the damage is found. All of this is rare, and the caller holds
the store's lock.
"""

import logging
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.queue_numbers import begins_again, continues
from tandemlog.format.files.queue_unit import UNIT_DTYPE

from ..errors import CorruptStoreError, StoreBusyError
from .number_doubts import is_impossible, is_stray, is_undecided
from .queue_floors import QueueFloors
from .queue_runs import QueueRuns
from .queue_table import QueueTable
from .queue_tails import CELL
from .queue_units import Change, QueueUnits

logger = logging.getLogger(__name__)

_ASKED: Final = 16
"""How many later units of one run are compared with their records."""


class Records(Protocol):
    """What the log says about single records."""

    def holds(self, topic: str, queue_id: int, queue_offset: int, unit: tuple[int, int]) -> bool:
        """Whether the record at `unit` (log offset, size) has that number of that queue."""

    def may_begin_again(self, log_offset: int, size: int, *, alone: bool) -> bool:
        """Whether a broker has written the record there, so that its queue may begin again with
        it; `alone` if no record behind it continues its number."""


class QueueMender:
    """Mends the queues of `units`; see the module."""

    def __init__(self, units: QueueUnits, table: QueueTable) -> None:
        self.damaged: dict[int, str] = {}
        """dense -> why; replaced and never changed, so that readers take no lock."""
        self.floors = QueueFloors()
        # whether dispatch has seen the log from its first record on: then a queue whose first
        # record is not number 0 is not damaged
        self.from_log_start = True
        # None: numbers never go back
        self.records: Records | None = None
        # the highest log offset to which any of the queues points that were on the disk at the open
        self.loaded_to = -1
        self._loaded: set[int] = set()
        # topic -> log offset of the earliest record with which one of its queues, as they were
        # found, had begun again
        self._loaded_begun_again: dict[str, int] = {}
        self._units = units
        self._table = table
        # dense -> numbers and cells of records that those behind them have to confirm
        self._undecided: dict[int, tuple[NDArray[np.int64], NDArray[np.void]]] = {}

    def contradict(self, dense: int, reason: str, log_offset: int) -> None:
        """A queue with all units of the records below `log_offset` has one that does not fit its
        record: as `mark_damaged`, and its numbers are remembered for the rebuild."""
        if dense not in self.damaged:
            first, end = self._units.first(dense), int(self._units.ends[dense])
            self.mark_damaged(dense, reason)
            self.floors.keep_held(dense, first, end, log_offset)

    def mark_damaged(self, dense: int, reason: str, end: int = 0) -> None:
        """See ConsumeQueueStore.mark_damaged."""
        if dense not in self.damaged:
            logger.warning("consume queue %s is damaged: %s", self.name(dense), reason)
            self.damaged = {**self.damaged, dense: reason}
            self.floors.keep(dense, max(end, int(self._units.ends[dense])))

    def note_loaded(self, dense: int) -> None:
        """The units of the queue are those that were on the disk at the open."""
        self._loaded.add(dense)
        self.loaded_to = max(self.loaded_to, int(self._units.last_physical[dense]))

    def are_behind(self, runs: QueueRuns) -> NDArray[np.bool_]:
        """Which runs lie in the log behind their queue's units: a loaded queue may have begun again
        after earlier records."""
        first_at = runs.cells.view(UNIT_DTYPE)["physical_offset"][runs.starts]
        behind: NDArray[np.bool_] = first_at > self._units.last_physical[runs.queues]
        behind |= self._units.ends[runs.queues] == 0
        return behind

    def deleted_queues(self, is_deleted: Callable[[str], bool]) -> list[int]:
        """See ConsumeQueueStore.drop_deleted; a second call does not repeat it."""
        deleted, begun, ends = [], self._loaded_begun_again, self._units.ends[: self._table.count]
        for dense in np.flatnonzero(ends).tolist():
            topic, _ = self._table.name(dense)
            older = int(self._units.last_physical[dense]) < begun.get(topic, 0)
            if dense not in self._loaded and (older or is_deleted(topic)):
                deleted.append(dense)
        self._loaded_begun_again = {}
        return deleted

    def rebuild_begin(self, queues: Iterable[int]) -> None:
        """The units of these queues are about to be removed and read again from the log."""
        for dense in queues:
            self.mark_damaged(dense, "it is being rebuilt")
            self._undecided.pop(dense, None)

    def needs_append(self, queues: NDArray[np.int64], remake: frozenset[int]) -> NDArray[np.bool_]:
        """Which of these queues need `append` for whatever comes."""
        return np.isin(queues, list(self._undecided if remake else self.damaged))

    def healed(self, queues: Iterable[int]) -> None:
        """These queues are whole again, and end at their floor at least."""
        whole = set(queues)
        for dense in whole:
            if dense in self._undecided:
                self._take_again(dense, *self._undecided[dense], more=False)
            self.raise_to(dense, self.floors.of(dense))
        self.floors.whole(whole)
        self.damaged = {q: why for q, why in self.damaged.items() if q not in whole}

    def check_whole(self, dense: int) -> None:
        if self.damaged and dense in self.damaged:
            raise self.busy(dense, self.damaged[dense])

    def busy(self, dense: int, reason: str) -> StoreBusyError:
        return StoreBusyError(
            f"consume queue {self.name(dense)} is being rebuilt from the log ({reason}): "
            "try again later"
        )

    def last_records(self) -> NDArray[np.int64]:
        """i8[queues]: log offset of the newest record of each; -1 where it has none, or is
        damaged."""
        count = self._table.count
        offsets = np.where(self._units.ends[:count] > 0, self._units.last_physical[:count], -1)
        offsets[list(self.damaged)] = -1
        return offsets

    def name(self, dense: int) -> str:
        topic, queue_id = self._table.name(dense)
        return f"{topic}/{queue_id}"

    def append(self, runs: QueueRuns, run: int, remake: frozenset[int]) -> bool:
        """A run that does not simply continue its queue; True if the queue grew."""
        dense, start, count = int(runs.queues[run]), int(runs.starts[run]), int(runs.counts[run])
        offsets, cells = runs.offsets[start : start + count], runs.cells[start : start + count]
        if dense in remake:
            return self._remake(dense, offsets, cells)
        if dense in self.damaged:
            return False
        bounds = [0, *(np.flatnonzero(np.diff(offsets) < 1) + 1).tolist(), count]
        grew = False
        for begin, end in pairwise(bounds):
            grew |= self._append_piece(dense, offsets[begin:end], cells[begin:end])
            if dense in self.damaged:
                break
        return grew

    def _append_piece(
        self, dense: int, offsets: NDArray[np.int64], cells: NDArray[np.void]
    ) -> bool:
        """As `append`, of numbers that rise."""
        units, first, count = self._units, int(offsets[0]), len(offsets)
        physical = cells.view(UNIT_DTYPE)["physical_offset"].astype(np.int64)
        if not is_impossible(first, int(physical[0])):
            self._give_way(dense, first)
        end, newest = int(units.ends[dense]), int(units.last_physical[dense])
        if end and first >= end and int(physical[-1]) < newest:
            return False  # of the queue before it began again
        if end and first == end and int(physical[0]) < newest:
            self.mark_damaged(dense, f"number {first} of the log lies before those of the queue")
            return False
        if first > end or int(offsets[-1]) - first != count - 1:
            self.mark_damaged(
                dense, f"the log continues with number {first}, but the queue ends at {end}"
            )
            return False
        repeated = min(end - first, count)
        try:
            agreeing = (
                self._agreeing(dense, offsets[:repeated], cells[:repeated]) if repeated else 0
            )
        except CorruptStoreError as error:
            self.mark_damaged(dense, str(error))
            return False
        if agreeing < repeated:
            if self._begins_again(dense, offsets[agreeing:], physical[agreeing:], cells[agreeing:]):
                self._begin_again(dense, int(offsets[agreeing]))
                units.extend(dense, cells[agreeing:])
                return True
            self.mark_damaged(dense, f"units from number {first} on are not those of the log")
            self.floors.contradicted(dense, first)
            return False
        if repeated == count or (end and int(physical[repeated]) < newest):
            return False
        units.extend(dense, cells[repeated:])
        return True

    def _begins_again(
        self,
        dense: int,
        offsets: NDArray[np.int64],
        physical: NDArray[np.int64],
        cells: NDArray[np.void],
    ) -> bool:
        """Whether the queue begins again with the first of these, by these alone."""
        if int(physical[0]) <= int(self._units.last_physical[dense]):
            return False
        if not begins_again(offsets, int(self._units.ends[dense]), more=False):
            return False
        return self._may_begin_again(int(physical[0]), cells, alone=not continues(offsets))

    def _may_begin_again(self, log_offset: int, cells: NDArray[np.void], *, alone: bool) -> bool:
        size = int(cells[:1].view(UNIT_DTYPE)["size"][0])
        return self.records is not None and self.records.may_begin_again(
            log_offset, size, alone=alone
        )

    def _begin_again(self, dense: int, queue_offset: int) -> None:
        """Drop the queue's units from that number on: their records were deleted."""
        units = self._units
        logger.info(
            "consume queue %s begins again at number %d: its topic, or its files, were deleted "
            "on the broker", self.name(dense), queue_offset,
        )  # fmt: skip
        self.floors.contradicted(dense, queue_offset)
        with Change(units):
            if queue_offset <= units.first(dense):
                units.forget(dense)
                units.create_at(dense, queue_offset)
            else:
                units.cut(dense, queue_offset)

    def _give_way(self, dense: int, first: int) -> None:
        """The log has a record of number `first` for the queue, and is right: a queue without units
        begins there, and pre-blank units that reserve the number are dropped."""
        units = self._units
        end = int(units.ends[dense])
        if units.has_no_files(dense):
            if first < end or (first > end and (self.from_log_start or end)):
                self.floors.contradicted(dense, first)
                with Change(units):
                    units.create_at(dense, first)
        elif first < end and units.is_blank_from(dense, first):
            self.floors.contradicted(dense, first)
            with Change(units):
                units.cut(dense, first)

    def raise_to(self, dense: int, end: int) -> None:
        """Let the queue end at `end` at least, with pre-blank units."""
        units = self._units
        if int(units.ends[dense]) >= end:
            return
        if units.has_no_files(dense):
            with Change(units):
                units.set_end(dense, end)
        else:
            logger.warning(
                "the log has no %d..%d of %s", int(units.ends[dense]), end - 1, self.name(dense)
            )
            units.fill(dense, end)

    def _remake(self, dense: int, offsets: NDArray[np.int64], cells: NDArray[np.void]) -> bool:
        """Append whatever numbers the log has, after those that waited for these."""
        if dense in self._undecided:
            numbers, waiting = self._undecided[dense]
            offsets = np.concatenate((numbers, offsets))
            cells = np.concatenate((waiting, cells))
        self._take_again(dense, offsets, cells, more=True)
        return True

    def _take_again(
        self, dense: int, offsets: NDArray[np.int64], cells: NDArray[np.void], *, more: bool
    ) -> None:
        """Unit by unit, as it is rare; `more` records of the queue may follow these. After an error
        the same may come again: what is there by then is skipped."""
        units = self._units
        evidence = self.floors.held.get(dense)
        physical = cells.view(UNIT_DTYPE)["physical_offset"].astype(np.int64)
        for index, offset in enumerate(offsets.tolist()):
            end = int(units.ends[dense])
            empty = end == 0 and units.queue(dense).first < 0
            before = -1 if empty else int(units.last_physical[dense])
            expected = -1 if empty else end
            if more and is_undecided(offsets[index:], physical[index:], expected):
                self._undecided[dense] = offsets[index:], cells[index:]
                return
            if is_stray(offsets[index:], physical[index:], expected, before, evidence):
                logger.warning(
                    "the record at offset %d of the log says that it is number %d of %s, but %d "
                    "is next: it is not dispatched",
                    int(physical[index]), offset, self.name(dense), end,
                )  # fmt: skip
                continue
            if offset < end:
                again = self._again(
                    dense, offsets[index:], physical[index:], cells[index:], more=more
                )
                if again is None:
                    self._undecided[dense] = offsets[index:], cells[index:]
                    return
                if not again:
                    continue
                self._begin_again(dense, offset)
                end = offset
            if offset > end:
                if units.queue(dense).first < 0 and end == 0:
                    units.create_at(dense, offset)
                else:
                    logger.warning("the log has no %d..%d of %s", end, offset - 1, self.name(dense))
                    units.fill(dense, offset)
            units.extend(dense, cells[index : index + 1])
        self._undecided.pop(dense, None)

    def _again(
        self,
        dense: int,
        offsets: NDArray[np.int64],
        physical: NDArray[np.int64],
        cells: NDArray[np.void],
        *,
        more: bool,
    ) -> bool | None:
        """Whether the queue, which is being remade, begins again with the first of these, whose
        number it has; None if more records have to tell."""
        offset = int(offsets[0])
        if int(physical[0]) <= int(self._units.last_physical[dense]):
            return False  # these were taken before
        again = begins_again(offsets, int(self._units.ends[dense]), more=more)
        if again:
            again = self._may_begin_again(int(physical[0]), cells, alone=not continues(offsets))
        if again is False:
            logger.warning("the log has number %d of %s twice", offset, self.name(dense))
        return again

    def _agreeing(self, dense: int, offsets: NDArray[np.int64], cells: NDArray[np.void]) -> int:
        """How many of these, from the first on, the queue has already: the same unit, or that of a
        later record of the same number. Units of deleted files count if their records lie below the
        first that the queue has."""
        count = len(offsets)
        if not count:
            return 0
        queue_offset = int(offsets[0])
        skip = min(max(self._units.first(dense) - queue_offset, 0), count)
        if skip:
            last = int(cells[skip - 1 : skip].view(UNIT_DTYPE)["physical_offset"][0])
            if last >= self._units.first_physical(dense):
                return 0
        stored = self._units.read(dense, queue_offset + skip, count - skip)
        if stored.tobytes() == cells[skip:].tobytes():
            return count
        units = cells[skip:].view(UNIT_DTYPE)
        others = skip + np.flatnonzero(stored.view(CELL) != units.view(CELL))
        later = stored["physical_offset"][others - skip] > units["physical_offset"][others - skip]
        plausible = others[: len(later) if later.all() else int(np.argmin(later))]
        asked = plausible[
            np.unique(np.linspace(0, len(plausible) - 1, _ASKED).astype(int))[: len(plausible)]
        ]
        for row in asked.tolist():
            if not self._is_right(dense, int(offsets[row]), stored[row - skip]):
                return int(row)
        if len(plausible) and not int(offsets[plausible[0]]):
            self._note_loaded_begun_again(
                dense, int(stored["physical_offset"][plausible[0] - skip])
            )
        return count if len(plausible) == len(others) else int(others[len(plausible)])

    def _is_right(self, dense: int, queue_offset: int, unit: np.void) -> bool:
        if self.records is None:
            return False
        topic, queue_id = self._table.name(dense)
        place = int(unit["physical_offset"]), int(unit["size"])
        return self.records.holds(topic, queue_id, queue_offset, place)

    def _note_loaded_begun_again(self, dense: int, log_offset: int) -> None:
        topic, _ = self._table.name(dense)
        earliest = self._loaded_begun_again.get(topic, log_offset)
        self._loaded_begun_again[topic] = min(earliest, log_offset)

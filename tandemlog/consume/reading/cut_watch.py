"""Of which log a reader's positions are, and when the master has to compare them again.

    answer of a node, with the newest term of its log
      the term of before                   counts
      an older one of the same log         counts below the place where the next term began: a slave
                                           has not followed yet, or has an end that will be cut
      one that the history does not have   nothing counts before the positions are compared

Until then messages may come from another log, in which other messages have these offsets. The
master compares (CheckPositions); while it is away a reader that has positions waits. An older node
says nothing of its log: its answers count as they are.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final

from ...cluster.histories import check_positions, is_unknown_call
from ...cluster.node import Node
from ...errors import InvalidArgumentError, NodeUnavailableError, RetryableError
from ...format.files.log_history import NO_CUT, LogHistory
from ...format.record.record import physical_offset_at, queue_offset_at
from .positions import Positions, Queue
from .pulls import Pulled

logger = logging.getLogger(__name__)

TurnOffsets = Mapping[Queue, tuple[int, int]]
"""By queue: the turn of its reading, and the offset of the next message."""

AGAIN_S: Final = 1.0
"""Between two questions about a term that is in no log that the master knows."""


class CutWatch:
    """Of one fetcher; one event loop. `positions_now()` is where each queue is now; `on_cut(queue,
    first)` is called for each that has to continue with an earlier message, before anything else is
    taken."""

    def __init__(
        self,
        positions: Positions,
        positions_now: Callable[[], TurnOffsets],
        on_cut: Callable[[Queue, int], None],
    ) -> None:
        self._positions = positions
        self._positions_now = positions_now
        self._on_cut = on_cut
        self.history: LogHistory | None = None
        self._comparing = asyncio.Lock()
        self._unknown_term: tuple[tuple[int, int], float] = ((0, 0), 0.0)

    @property
    def log_term(self) -> tuple[int, int]:
        """Any thread: the newest term of the log that the positions are of; zeros if that is not
        known."""
        return (0, 0) if self.history is None else self.history.newest

    async def counts_below(self, log_term: tuple[int, int], node: Node) -> int | None:
        """The log offset below which messages of an answer of `node` count, whose log ends with
        `log_term`; NO_CUT: all count. None: none counts, its log is not that of the cluster. May
        move queues. Raises NodeUnavailableError while there is no master to ask."""
        if not self._comparing.locked():
            below = self._counts_below(log_term)
            if below is not None:
                return below
        async with self._comparing:
            below = self._counts_below(log_term)
            if below is not None:
                return below
            if self.history is None:
                await self._learn(node)
                return NO_CUT if self.history is None else self._counts_below(log_term)
            now = asyncio.get_running_loop().time()
            unknown, since = self._unknown_term
            if unknown != log_term or now - since >= AGAIN_S:
                await self._compare(node)
                self._unknown_term = (log_term, now)
            return self._counts_below(log_term)

    async def catch_up(self) -> None:
        """Compare with the master's log as it is now. To be called before new positions are asked
        for: what is known of the log must not be older than they are. Raises
        NodeUnavailableError."""
        async with self._comparing:
            await self._compare(None)

    async def try_catch_up(self) -> None:
        """As `catch_up`, unless there is no master now: the next answers show a change as well."""
        with contextlib.suppress(NodeUnavailableError, RetryableError):
            await self.catch_up()

    async def ends_of(self, pulled: Pulled, *, filtered: bool) -> Mapping[Queue, int] | None:
        """By queue, the offset from which an answer has messages that are not of the cluster's log;
        queues without such messages are left out. None: nothing of the answer counts. Raises as
        `counts_below`."""
        below = await self.counts_below(pulled.log_term, pulled.node)
        if below is None or below >= NO_CUT:
            return None if below is None else {}
        batches = [batch for _, batch in pulled.parts]
        if filtered:
            # the last messages that the node has looked at may be left out
            following: dict[Queue, int] = {}
            for batch in batches:
                following[batch.queue] = max(batch.next_offset, following.get(batch.queue, 0))
            return await self.ends_that_count(following, pulled.log_term)
        ends: dict[Queue, int] = {}
        for batch in batches:
            for position in map(int, batch.positions):
                if physical_offset_at(batch.records, position) >= below:
                    queue, first = batch.queue, queue_offset_at(batch.records, position)
                    ends[queue] = min(first, ends.get(queue, first))
                    break
        return ends

    async def ends_that_count(
        self, offsets: Mapping[Queue, int], log_term: tuple[int, int]
    ) -> Mapping[Queue, int] | None:
        """For next offsets by the word of a node with an older end of the log: by queue, where the
        part ends that the cluster's log has, if the offset is behind it. None: ask again, the log
        has changed. Raises NodeUnavailableError."""
        history = self.history
        if history is None:
            return None
        checked = await self._positions.check(offsets, history.up_to(*log_term))
        return checked.cut if self.history is history else None

    def _counts_below(self, log_term: tuple[int, int]) -> int | None:
        if not log_term[0]:
            return NO_CUT
        if self.history is None:
            return None
        if log_term == self.history.newest:
            return NO_CUT
        return self.history.end_of(*log_term)

    async def _learn(self, node: Node) -> None:
        """For the first time: nothing can be said of what was read before."""
        try:
            checked = await check_positions(node, None, {}, self._positions.timeout_ms)
        except InvalidArgumentError as error:
            if not is_unknown_call(error):
                raise
            return
        self._set_history(checked.history)

    async def _compare(self, node: Node | None) -> None:
        before, compared = self.history, dict[Queue, int]()
        first: LogHistory | None = None
        while True:
            current = self._positions_now()
            rows = {
                queue: offset
                for queue, (turn, offset) in current.items()
                if compared.get(queue) != turn and offset > 0
            }
            if first is not None and not rows:
                break
            try:
                checked = await self._positions.check(rows, before)
            except InvalidArgumentError as error:
                if not is_unknown_call(error):
                    raise
                # the master has an older version than the node that has answered
                self.history = None
                if node is not None:
                    await self._learn(node)
                return
            first = first or checked.history
            for queue in rows:
                turn, offset = current[queue]
                if self._positions_now().get(queue, (0, 0))[0] != turn:
                    continue
                compared[queue] = turn
                if queue in checked.cut and checked.cut[queue] < offset:
                    self._on_cut(queue, checked.cut[queue])
                    compared[queue] = self._positions_now().get(queue, (turn, 0))[0]
        self._set_history(first)

    def _set_history(self, history: LogHistory) -> None:
        if not history.terms:
            return
        if self.history is not None and history.newest != self.history.newest:
            logger.info(
                "the log continued: epoch=%d -> %d", self.history.newest[0], history.newest[0]
            )
        self.history = history

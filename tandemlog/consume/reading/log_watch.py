"""Which log a reader's positions are positions in, and when that has to be asked again.

    answer of a node, with the newest term of its log
      the term of before                   counts
      an older one of the same log         counts below the place where the next term began: a slave
                                           has not followed yet, or has an end that will be cut
      one that the history does not have   nothing counts before the positions are compared

Until then messages may come from another log, in which other ones have these numbers. The master
compares (CheckPositions); while it is away a reader that has positions waits. An older node says
nothing of its log: its answers count as they are.
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
from ..received.received_batch import ReceivedBatch
from .positions import Positions, Queue
from .pulls import Pulled

logger = logging.getLogger(__name__)

Standing = Mapping[Queue, tuple[int, int]]
"""By queue: the turn of its reading, and the offset of the next message."""

AGAIN_S: Final = 1.0
"""Between two questions about a term that is in no log that the master knows."""


class LogWatch:
    """Of one fetcher; one event loop. `standing()` is where each queue is now; `on_cut(queue,
    first)` is called for each that has to continue with an earlier message, before anything else is
    taken."""

    def __init__(
        self,
        positions: Positions,
        standing: Callable[[], Standing],
        on_cut: Callable[[Queue, int], None],
    ) -> None:
        self._positions = positions
        self._standing = standing
        self._on_cut = on_cut
        self.history: LogHistory | None = None
        self._comparing = asyncio.Lock()
        self._strange: tuple[tuple[int, int], float] = ((0, 0), 0.0)

    @property
    def log_term(self) -> tuple[int, int]:
        """Any thread: what the positions are of; zeros if that is not known."""
        return (0, 0) if self.history is None else self.history.newest

    async def counts_below(self, log_term: tuple[int, int], node: Node) -> int | None:
        """Below which log offset messages count in an answer of `node`, whose log ends with
        `log_term`; NO_CUT: all. None: nothing of it, its log is not that of the cluster. May move
        queues. Raises NodeUnavailableError while there is no master to ask."""
        if not self._comparing.locked():
            known = self._known(log_term)
            if known is not None:
                return known
        async with self._comparing:
            known = self._known(log_term)
            if known is not None:
                return known
            if self.history is None:
                await self._learn(node)
                return NO_CUT if self.history is None else self._known(log_term)
            now = asyncio.get_running_loop().time()
            strange, since = self._strange
            if strange != log_term or now - since >= AGAIN_S:
                await self._compare(node)
                self._strange = (log_term, now)
            return self._known(log_term)

    async def catch_up(self) -> None:
        """Compare with the master's log as it is now. Before new positions are asked for: what is
        known of the log must not be older than they are. Raises NodeUnavailableError."""
        async with self._comparing:
            await self._compare(None)

    async def look(self) -> None:
        """The same where it is possible: without a master, the nodes that are read say it later."""
        with contextlib.suppress(NodeUnavailableError, RetryableError):
            await self.catch_up()

    async def ends_of(self, pulled: Pulled, *, filtered: bool) -> Mapping[Queue, int] | None:
        """Where an answer stops to count, by queue, in those in which messages follow that are not
        of the cluster's log. None: nothing of it counts. Raises as `counts_below`."""
        below = await self.counts_below(pulled.log_term, pulled.node)
        if below is None or below >= NO_CUT:
            return None if below is None else {}
        batches = [batch for _, batch in pulled.parts]
        if filtered:
            # the last messages that the node has looked at may be left out
            following: dict[Queue, int] = {}
            for batch in batches:
                queue = _queue(batch)
                following[queue] = max(batch.next_offset, following.get(queue, 0))
            return await self.ends_that_count(following, pulled.log_term)
        found: dict[Queue, int] = {}
        for batch in batches:
            for position in map(int, batch.positions):
                if physical_offset_at(batch.records, position) >= below:
                    queue, first = _queue(batch), queue_offset_at(batch.records, position)
                    found[queue] = min(first, found.get(queue, first))
                    break
        return found

    async def ends_that_count(
        self, offsets: Mapping[Queue, int], log_term: tuple[int, int]
    ) -> Mapping[Queue, int] | None:
        """Of next offsets that a node with an older end of the log has told, those that lie behind
        what the cluster's log has of it, and where that ends. None: ask again, the log has changed.
        Raises NodeUnavailableError."""
        history = self.history
        if history is None:
            return None
        found = await self._positions.check(offsets, history.up_to(*log_term))
        return found.cut if self.history is history else None

    def _known(self, log_term: tuple[int, int]) -> int | None:
        if not log_term[0]:
            return NO_CUT
        if self.history is None:
            return None
        if log_term == self.history.newest:
            return NO_CUT
        return self.history.end_of(*log_term)

    async def _learn(self, node: Node) -> None:
        """What was read before is of no log that is known, and nothing can be said of it."""
        try:
            found = await check_positions(node, None, {}, self._positions.timeout_ms)
        except InvalidArgumentError as error:
            if not is_unknown_call(error):
                raise
            return
        self._take(found.history)

    async def _compare(self, node: Node | None) -> None:
        before, compared = self.history, dict[Queue, int]()
        first: LogHistory | None = None
        while True:
            standing = self._standing()
            rows = {
                queue: offset
                for queue, (turn, offset) in standing.items()
                if compared.get(queue) != turn and offset > 0
            }
            if first is not None and not rows:
                break
            try:
                found = await self._positions.check(rows, before)
            except InvalidArgumentError as error:
                if not is_unknown_call(error):
                    raise
                # a master that is older than the node that has answered
                self.history = None
                if node is not None:
                    await self._learn(node)
                return
            first = first or found.history
            for queue in rows:
                turn, offset = standing[queue]
                if self._standing().get(queue, (0, 0))[0] != turn:
                    continue
                compared[queue] = turn
                if queue in found.cut and found.cut[queue] < offset:
                    self._on_cut(queue, found.cut[queue])
                    compared[queue] = self._standing().get(queue, (turn, 0))[0]
        self._take(first)

    def _take(self, history: LogHistory) -> None:
        if not history.terms:
            return
        if self.history is not None and history.newest != self.history.newest:
            logger.info(
                "the log continued: epoch=%d -> %d", self.history.newest[0], history.newest[0]
            )
        self.history = history


def _queue(batch: ReceivedBatch) -> Queue:
    return batch.topic, batch.queue_id

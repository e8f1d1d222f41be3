"""Reads spans of queues to their ends, in their order (span_progress.py).

    nodes of the reader's order ──pull──▶ is it of the log?  ──▶ SpanProgress ──▶ messages in order
             ▲                            (cut_watch.py)             │
             └── another node, a moment later ◀── nothing moved ─────┤
                                                 for patience_ms: the master alone decides

The spans are of the log with `history`: the answers of a node with an older end of that log count
up to that end, those of a node with another log do not count. Where the cluster's log was cut below
a span's end, the rest of the span is lost. Without a history, the log is that of the first node
that answers.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...cluster.node import Node
from ...errors import NodeUnavailableError, TandemlogError, UnknownQueueError, UnknownTopicError
from ...format.files.log_history import LogHistory
from ..received.received_batch import ReceivedBatch
from .cut_watch import CutWatch
from .positions import Positions
from .pulls import Pulled, pull
from .reader import Reader
from .selector import EVERYTHING, Selector
from .span_progress import OnLoss, QueueSpan, SpanProgress

_LONG_POLL_MS: Final = 500
"""How long a node that is behind may wait for the first message."""
_FILTER_POLL_MS: Final = 1
"""A node that may wait continues its search behind messages that it filters out. It must not wait
at the end of a queue in which no message matches."""
_PAUSE_S: Final = 0.02
_MOST: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SpanOptions:
    """`selector`: of the messages to be read. `max_bytes` of one response, and of what is
    held back. `patience_ms` without a message after which the master alone decides; errors call it
    `patience_name`. `verify_crc`: a body that is not the one that was sent is damage."""

    selector: Selector = EVERYTHING
    max_bytes: int = 8 << 20
    patience_ms: int = 10_000
    patience_name: str = "patience_ms"
    verify_crc: bool = True
    group: str = ""


class SpanReader:
    """See the module. One event loop. `on_loss` raises for messages that are lost, or returns: then
    reading continues behind them."""

    def __init__(
        self,
        reader: Reader,
        positions: Positions,
        spans: Sequence[QueueSpan],
        on_loss: OnLoss,
        options: SpanOptions,
        history: LogHistory | None = None,
    ) -> None:
        self._reader = reader
        self._options = options
        self._topics = sorted({span.topic for span in spans})
        self._positions = positions
        self._progress = SpanProgress(
            spans,
            filtered=options.selector.is_narrow,
            on_loss=on_loss,
            hold_bytes=options.max_bytes,
            verify_crc=options.verify_crc,
        )
        self._log = CutWatch(self._positions, lambda: self._progress.positions, self._progress.cut)
        self._log.history = history
        self._moved_at = 0.0

    def __str__(self) -> str:
        """What is still to be read, for errors."""
        return str(self._progress)

    async def next_batches(self) -> list[ReceivedBatch]:
        """The next messages, in order; none at the end. Raises what `on_loss` raises, and
        NodeUnavailableError if no node has the messages and no master says that they are lost."""
        self._moved_at = asyncio.get_running_loop().time()
        while not self._progress.done:
            await self._read_once()
            tags = self._options.selector.tags
            batches = [each.only_tags(tags) for each in self._progress.pop_ready()]
            if batches := [each for each in batches if len(each)]:
                return batches
        return []

    async def _read_once(self) -> None:
        now = asyncio.get_running_loop().time
        pulled = await self._reader.ask(self._pull)
        if await self._accept(pulled):
            self._moved_at = now()
            return
        topology = await self._reader.connection.current_topology()
        master = topology.authority.endpoint if topology.authority is not None else None
        late = now() - self._moved_at > self._options.patience_ms / 1e3
        if late and (master is None or self._progress.has_heard(master)):
            ranges = await self._positions.ranges_at_master(self._topics)
            ends = None if ranges is None else {q: each.max_offset for q, each in ranges.items()}
            self._progress.give_up(self._reason(), master, ends)
            self._moved_at = now()
            return
        self._reader.leave(pulled.node, "it does not have the next messages")
        await asyncio.sleep(_PAUSE_S)

    def _reason(self) -> str:
        options = self._options
        return f"no node sent messages for {options.patience_ms} ms ({options.patience_name})"

    async def _pull(self, node: Node) -> Pulled:
        places = self._progress.places()
        options = self._options
        try:
            return await pull(
                node,
                places,
                self._reader.connection.options.request_timeout_ms,
                max_messages=min(self._progress.most_messages, _MOST),
                max_bytes=options.max_bytes,
                selector=options.selector,
                wait_ms=_FILTER_POLL_MS if options.selector.is_narrow else _LONG_POLL_MS,
                group=options.group,
            )
        except (UnknownTopicError, UnknownQueueError) as error:
            topology = await self._reader.connection.current_topology()
            if topology.authority is not None and topology.authority.endpoint == node.endpoint:
                raise
            raise NodeUnavailableError(f"{error}; the master may know it") from error

    async def _accept(self, pulled: Pulled) -> bool:
        """Whether anything moved."""
        try:
            ends = await self._log.ends_of(pulled, filtered=self._options.selector.is_narrow)
        except TandemlogError as error:
            if not error.retryable:
                raise
            return False  # there is no master to compare the log with
        if ends is None:
            return False
        topology = await self._reader.connection.current_topology()
        deciders = self._reader.order.deciders(topology)
        return self._progress.accept(pulled.parts, pulled.node.endpoint, deciders, ends)

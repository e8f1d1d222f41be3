"""What a task does: pull the raw records of its spans, and decode them to Arrow by columns.

    loop's thread    pull k+1  ........ pull k+2 ........
    task's thread    decode k, hand over   decode k+1 ...

The next pull runs while the last response is decoded. One request asks for several queues of a
partition, whose rows are passed on one queue after the other (progress.py). If a node fails, is
behind or has a damaged message, the task tries others; it gives up after pullTimeoutMs without a
message.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tandemlog.arrow.received import columns_of
from tandemlog.cluster.pull_answer import PullAnswer
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.positions import Positions
from tandemlog.consume.reading import Reader
from tandemlog.consume.received import ReceivedBatch
from tandemlog.errors import (
    NodeUnavailableError,
    TandemlogError,
    UnknownQueueError,
    UnknownTopicError,
)
from tandemlog.format.record.tags import parse_tags, tag_hashes
from tandemlog.logs.view_columns import Columns, arrow_schema
from tandemlog.v1 import broker_pb2

from ..cluster.connections import connection_of, run, start
from ..cluster.errors import ClusterError
from ..cluster.offsets import Queue, QueueSpan
from ..cluster.options import ClusterOptions
from .nodes import NodeChoice
from .progress import PullProgress

if TYPE_CHECKING:
    from tandemlog.cluster.connection import Connection

_LONG_POLL_MS: Final = 500
"""How long a node that is behind may wait for the first message."""
_FILTER_POLL_MS: Final = 1
"""A node that is to wait looks on behind what it filters out. It must not wait at the end of a
queue without a message that matches."""
_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Pulling:
    """What every task of a read has to know; see ReadOptions."""

    cluster: ClusterOptions
    columns: Columns
    read_from: ReadFrom
    tags: str | None
    fail_on_data_loss: bool
    pull_bytes: int
    pull_timeout_ms: int
    verify_crc: bool
    group: str


def read_spans(
    pulling: Pulling, spans: Sequence[QueueSpan], number: int
) -> Iterator[pa.RecordBatch]:
    """The messages of the spans, one span behind the other; `number` is the partition's.

    Raises DataLossError for messages that are gone, ClusterError if no node gives them.
    """
    tags = parse_tags(pulling.tags)
    progress = PullProgress(
        spans,
        filtered=tags is not None,
        fail_on_data_loss=pulling.fail_on_data_loss,
        hold_bytes=pulling.pull_bytes,
        verify_crc=pulling.verify_crc,
    )
    puller = _Puller(pulling, number, sorted(tag_hashes(tags) or ()))
    deadline = time.monotonic() + pulling.pull_timeout_ms / 1000
    pending = puller.ask(progress) if not progress.done else None
    try:
        while pending is not None:
            pulled = _result(pending, progress)
            found, moved = progress.take(pulled.answer.parts, pulled.endpoint, pulled.must_say)
            heard = pulled.master is None or progress.has_heard(pulled.master)
            if not moved and heard and time.monotonic() > deadline:
                reason = f"no node sent messages for {pulling.pull_timeout_ms} ms (pullTimeoutMs)"
                ends = puller.ends([span.topic for span in spans])
                found, moved = progress.give_up(reason, pulled.master, ends), True
            if moved:
                deadline = time.monotonic() + pulling.pull_timeout_ms / 1000
            pending = None if progress.done else puller.ask(progress, leave=not moved)
            for batch in found:
                wanted = batch.only_tags(tags)
                if len(wanted):
                    yield decode(wanted, pulling.columns)
    finally:
        if pending is not None:
            pending.cancel()


def decode(batch: ReceivedBatch, columns: Columns) -> pa.RecordBatch:
    """The records of a pull as the given columns of schema.MESSAGES, bodies as their producers gave
    them. Raises BadRecordError naming queue and offset for a
    record that cannot be decoded, or a body that cannot be decompressed. The CRCs were checked
    before (progress.py)."""
    return columns_of([batch], arrow_schema(columns), verify_crc=False)


@dataclass(frozen=True, slots=True)
class _Pulled:
    """An answer and the node that gave it. `must_say`: the endpoints of all that may have what it
    lacks, `master` that of the one that speaks for the cluster; None if there is none."""

    answer: PullAnswer
    endpoint: str
    must_say: frozenset[str] | None
    master: str | None


def _result(pending: Future[_Pulled], progress: PullProgress) -> _Pulled:
    try:
        return pending.result()
    except TandemlogError as error:
        raise ClusterError(f"reading {progress.stuck()}: {error}") from error


class _Puller:
    """Asks nodes; `ask` and `ends` from the task's thread, the rest in the loop."""

    def __init__(self, pulling: Pulling, number: int, hashes: Sequence[int]) -> None:
        self._pulling = pulling
        self._hashes = hashes
        self._connection: Connection = connection_of(pulling.cluster)
        self._nodes = NodeChoice(self._connection, pulling.read_from, number)

    def ask(self, progress: PullProgress, *, leave: bool = False) -> Future[_Pulled]:
        """The answer to what `progress` wants next; `leave`: the node asked last is behind."""
        request = broker_pb2.PullRequest(
            positions=progress.positions(),
            max_messages=min(progress.most_rows, (1 << 31) - 1),
            max_bytes=self._pulling.pull_bytes,
            tag_hashes=self._hashes,
            wait_ms=_FILTER_POLL_MS if self._hashes else _LONG_POLL_MS,
            group=self._pulling.group,
        )
        return start(self._pull(request, leave))

    def ends(self, topics: Sequence[str]) -> dict[Queue, int] | None:
        """Where the queues of these topics end, by the master's word; None if there is none. Raises
        ClusterError."""
        positions = Positions(self._connection, Reader(self._connection, ReadFrom.MASTER))
        work = positions.held_by_master(sorted(set(topics)))
        held = run(work, "asking where queues end")
        return None if held is None else {queue: each.max_offset for queue, each in held.items()}

    async def _pull(self, request: broker_pb2.PullRequest, leave: bool) -> _Pulled:
        if leave:
            await asyncio.sleep(_PAUSE_S)
            self._nodes.leave(await self._nodes.current())
        timeout_ms = request.wait_ms + self._pulling.cluster.request_timeout_ms
        async for attempt in self._connection.retrying():
            with attempt:
                node = await self._nodes.current()
                try:
                    answer = await node.pull(request, timeout_ms)
                    return _Pulled(answer, node.endpoint, *await self._nodes.who_knows())
                except (UnknownTopicError, UnknownQueueError) as error:
                    _, master = await self._nodes.who_knows()
                    if node.endpoint == master:
                        raise
                    self._nodes.leave(node)
                    raise NodeUnavailableError(f"{error}; the master may know it") from error
                except TandemlogError as error:
                    if error.elsewhere:
                        self._nodes.leave(node)
                    raise
        raise AssertionError("retries end with a result or an error")

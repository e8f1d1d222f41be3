"""The requests of one task, sent under its name, and what became of them.

    chunk 0, 1, 2, ...  ──▶  client's sender  ──▶  master         one stream, many in flight
    rows, duplicates    ◀──  outcomes         ◀──

Built of the client's parts, with one difference to its producer: a request keeps the number that
its place among the chunks gives it. What would need another number ends the task, which Spark then
runs again. A request's checksum is of all that was written up to it, so that a master which knows
the last one vouches for those that it has forgotten. Requests do not expire one by one either: the
task gives up as a whole, sendTimeoutMs after the last answer.
"""

import math
import secrets
import threading
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.answer import PutAnswer
from tandemlog.cluster.connection import MAX_GRPC_MESSAGE, Connection
from tandemlog.cluster.endpoints import own_address
from tandemlog.errors import (
    BufferFullError,
    OutcomeUnknownError,
    SequenceConflictError,
    TandemlogError,
)
from tandemlog.format.columns.encode import encode_columns
from tandemlog.format.columns.request_checksum import content_checksum, request_checksum
from tandemlog.format.errors import FormatError
from tandemlog.produce.accumulator import Accumulator
from tandemlog.produce.chain import Numbers
from tandemlog.produce.column_framing import FramedColumns
from tandemlog.produce.core import durability_of
from tandemlog.produce.framing import USER_PROPERTIES_LIMIT, Framer, too_large_body
from tandemlog.produce.futures import SendFuture, SyncGroup
from tandemlog.produce.put_batch import Nobody
from tandemlog.produce.routes import RouteTable
from tandemlog.produce.sender import Sender, SenderOptions
from tandemlog.sync.loop_thread import LoopThread

from ..cluster.connections import connection_of, run
from ..cluster.errors import RepeatMismatchError, RowError, SinkError
from ..cluster.options import WriteOptions
from .columns import Rows
from .repeats import MISMATCH, stored_chunks
from .writer_name import WriterName

_IN_FLIGHT_BYTES: Final = 32 << 20
_IN_FLIGHT_REQUESTS: Final = 32
_ANSWER_SECONDS: Final = 15.0
_GRPC_MARGIN: Final = 1 << 20
_LOOK_SECONDS: Final = 0.5


class Outcomes:
    """What became of the requests; filled in the loop, waited for by the task."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.duplicates = 0
        self.failure: TandemlogError | None = None
        self._open = 0
        self._changed = threading.Condition()
        self._last = time.monotonic()

    def sink(self) -> "_ChunkSink":
        with self._changed:
            self._open += 1
            return _ChunkSink(self)

    def acknowledged(self, answer: PutAnswer) -> None:
        with self._changed:
            self._open -= 1
            self._last = time.monotonic()
            self.rows += answer.count
            self.bytes += answer.byte_size
            self.duplicates += answer.duplicate
            self._changed.notify_all()

    def failed(self, error: TandemlogError) -> None:
        with self._changed:
            self._open -= 1
            # The first one has the reason, those behind it only follow.
            if self.failure is None or isinstance(self.failure, OutcomeUnknownError):
                self.failure = error
            self._changed.notify_all()

    def seconds_since_answer(self) -> float:
        return time.monotonic() - self._last

    def wait(self, seconds: float) -> bool:
        """Whether all have an outcome, or one has failed, within `seconds`."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._open or self.failure is not None, seconds
            )


class _ChunkSink(Nobody):
    """One request of a task."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    def acknowledged(self, answer: PutAnswer) -> None:
        self._outcomes.acknowledged(answer)

    def failed(self, error: TandemlogError) -> None:
        self._outcomes.failed(error)


def _checksum(rows: Rows, framed: FramedColumns, before: int) -> int:
    """Of all that is written from the first chunk to this one. Left out is what an attempt decides:
    times and ids, and the queues of rows that name none, which change with a topic's queues."""
    if rows.wanted is not None:
        before = request_checksum((rows.wanted.astype("<i8").tobytes(),), before)
    return content_checksum(framed.batch.records, framed.batch.sizes, before=before)


class SinkSender:
    """Sends chunks in order; `finish` waits for their outcome, `close` ends. Raises ClusterError
    where the cluster has no master for long, SinkError for all that goes wrong later."""

    def __init__(self, options: WriteOptions, name: WriterName) -> None:
        self.outcomes = Outcomes()
        self.chunk = 0
        self._checksum = 0
        self._stored = 0
        self._options = options
        self._name = name
        self._connection: Connection = connection_of(options.cluster)
        self._thread = LoopThread.of_process()
        self._routes = RouteTable(self._connection.topics, pick=lambda queues: 0)
        run(self._open(), "opening a writer")

    async def _open(self) -> None:
        connection = self._connection
        await connection.on_master(_itself)
        topology = connection.topology
        master = topology.master
        assert master is not None
        self._framer = Framer(
            born_address=await own_address(master.endpoint),
            store_ipv6=master.store_host.startswith("["),
            max_body=min(topology.max_message_size, MAX_GRPC_MESSAGE - _GRPC_MARGIN),
            unique_ids=self._options.unique_ids,
        )
        self._max_request = min(topology.max_batch_size, MAX_GRPC_MESSAGE - _GRPC_MARGIN)
        self._accumulator: Accumulator[SendFuture] = Accumulator(
            batch_bytes=self._options.batch_bytes,
            max_bytes=_IN_FLIGHT_BYTES,
            delivery_seconds=math.inf,
            new_group=SyncGroup,
            wake=self._wake,
        )
        self._sender = Sender(
            connection,
            self._accumulator,
            self._numbers(),
            SenderOptions(
                linger_seconds=0,
                answer_seconds=min(_ANSWER_SECONDS, self._options.send_timeout_ms / 1000),
                delivery_seconds=math.inf,
                max_requests_in_flight=_IN_FLIGHT_REQUESTS,
            ),
            named=self._name.producer_id is not None,
            refused=lambda batch, error: None,
        )

    def _numbers(self) -> Numbers:
        if self._name.producer_id is None:
            return Numbers(secrets.token_hex(8), fixed=True)
        return Numbers(self._name.producer_id, epoch=self._name.epoch, fixed=True)

    def _wake(self) -> None:
        self._thread.loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._sender.look()

    def close(self) -> None:
        """Ends at once: what has no outcome yet is not waited for."""
        self._thread.run(self._sender.close(0))

    def queues_of(self, topic: str) -> int:
        """The queues that a topic has to write to; raises ClusterError."""
        route = self._routes.get(topic)
        if route is None:
            route = run(self._routes.load(topic), f"looking at topic {topic}")
        return route.queues

    @property
    def turn(self) -> int:
        """Chooses the queue of rows that do not: the same one in every attempt."""
        return self._name.partition + self.chunk

    def send(self, rows: Rows) -> None:
        """Takes the next chunk; waits while too much has no answer."""
        framed = self._framed(rows)
        size = len(framed.batch.records)
        if size > self._max_request:
            raise SinkError(
                f"{self._where()}: the request has {size} bytes, the cluster takes "
                f"{self._max_request}: make batchBytes or batchMessages smaller"
            )
        self._wait_for_repeats()
        self._checksum = _checksum(rows, framed, self._checksum)
        batch = framed.put_batch(
            durability_of(self._options.wait), self.outcomes.sink(), math.inf, self._checksum
        )
        try:
            while not self._accumulator.submit(batch):
                self._check()
                try:
                    self._accumulator.wait_for_room(batch.byte_size, _LOOK_SECONDS)
                except BufferFullError:
                    continue  # _check knows for how long
        except TandemlogError as error:
            raise self._failed(self.outcomes.failure or error) from error
        self.chunk += 1

    def _wait_for_repeats(self) -> None:
        """Until it is known of all that was stored before that it is what would be sent now. A
        master that finds another chunk refuses that one alone: those behind it would be stored."""
        if self._name.producer_id is None:
            return
        if self.chunk == 1:
            self.finish()
            if self.outcomes.duplicates:
                self._stored = stored_chunks(self._options.cluster, self._name)
        elif self.chunk == self._stored:
            self.finish()

    def finish(self) -> None:
        """Waits until everything is acknowledged."""
        while not self.outcomes.wait(_LOOK_SECONDS):
            self._check()
        if self.outcomes.failure is not None:
            raise self._failed(self.outcomes.failure) from self.outcomes.failure

    def _check(self) -> None:
        """Raises SinkError where it has no use to wait any longer."""
        if self.outcomes.failure is not None:
            raise self._failed(self.outcomes.failure) from self.outcomes.failure
        silent = self.outcomes.seconds_since_answer()
        if silent * 1000 > self._options.send_timeout_ms:
            raise SinkError(
                f"{self._where()}: no answer for {silent:.0f} s (sendTimeoutMs); the rows may or "
                "may not be stored, and a repetition finds out"
            )

    def _failed(self, error: TandemlogError) -> SinkError:
        if isinstance(error, SequenceConflictError):
            return RepeatMismatchError(f"{self._where()}: {error}; {MISMATCH}")
        return SinkError(f"{self._where()}: {error}")

    def _where(self) -> str:
        return f"partition {self._name.partition}, writer {self._name.producer_id or 'unnamed'}"

    def _framed(self, rows: Rows) -> FramedColumns:
        framer = self._framer
        lengths = rows.bodies.lengths
        if len(lengths) and int(lengths.max()) > framer.max_body:
            row = int(np.argmax(lengths > framer.max_body))
            raise RowError(row, str(too_large_body(int(lengths[row]), framer.max_body, row)))
        for topic in rows.topics:
            framer.topic_frame(topic)
        try:
            batch = encode_columns(
                bodies=rows.bodies,
                topics=rows.topics,
                queue_topics=rows.queue_topics,
                queue_ids=rows.queue_ids,
                queue_indexes=rows.entries,
                uniq_keys=framer.unique_id_column(len(rows.bodies)) if framer.unique_ids else None,
                keys=rows.keys,
                tags=rows.tags,
                own_properties=rows.properties,
                born_timestamp=framer.now_ms(),
                born_host=framer.born_host,
                store_ipv6=framer.store_ipv6,
            )
        except FormatError as error:
            raise SinkError(f"{self._where()}: chunk {self.chunk}: {error}") from error
        self._check_room_for_mark(batch.sizes, rows)
        return FramedColumns(batch)

    def _check_room_for_mark(self, sizes: NDArray[np.uint32], rows: Rows) -> None:
        """The first record of a request gets the writer's mark beside its own properties."""
        first = int(sizes[0]) - int(rows.bodies.lengths[0])
        if first > USER_PROPERTIES_LIMIT:
            raise RowError(
                0,
                f"keys, tags and properties take about {first} bytes, the limit is "
                f"{USER_PROPERTIES_LIMIT}",
            )


async def _itself(node: object) -> None:
    """For on_master: it is enough that there is one."""

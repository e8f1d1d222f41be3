"""Sends the requests of one task under its name, and collects their outcomes.

    chunk 0, 1, 2, ...  ──▶  client's sender  ──▶  master         one stream, many in flight
    rows, duplicates    ◀──  outcomes         ◀──

It uses the client's RequestPipeline, with one difference from the producer: a request keeps the
number of its chunk. If a request would need another number, the task fails, and Spark runs it
again. A request's checksum covers everything written up to it, so a master that knows the last one
also confirms earlier ones that it has forgotten. Nor do single requests expire: the task as a whole
gives up, sendTimeoutMs after the last answer.
"""

import threading
import time
from typing import Final

from tandemlog.errors import (
    BadRecordError,
    InvalidTopicNameError,
    MessageTooLargeError,
    OutcomeUnknownError,
    PropertiesTooLargeError,
    SequenceConflictError,
    TandemlogError,
)
from tandemlog.format.columns.checksum_columns import content_checksum
from tandemlog.format.errors import FormatError
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.request_checksum import request_checksum
from tandemlog.produce.request_pipeline import RequestPipeline
from tandemlog.put_answer import PutAnswer

from ..cluster.cluster_errors import RepeatMismatchError, RowError, SinkError
from ..cluster.live_options import WriteOptions
from ..cluster.process_connections import connection_of, run
from .repeated_writes import MISMATCH, stored_chunks
from .sink_columns import Rows
from .sink_delays import NOT_COMPARED
from .writer_name import WriterName

_ANSWER_SECONDS: Final = 15.0
_CHECK_SECONDS: Final = 0.5
_OLD_NODE: Final = (
    "a master older than 0.2 knows no messages that come later: upgrade its node, or write without "
    "the columns deliver_at and delay"
)


class Outcomes:
    """The outcomes of the requests: the loop sets them, the task waits for them."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.duplicates = 0
        self.failure: TandemlogError | None = None
        self._open = 0
        self._changed = threading.Condition()
        self._last = time.monotonic()

    def expect_one(self) -> None:
        """One more request will have an outcome."""
        with self._changed:
            self._open += 1

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
            # The first one has the reason, later ones are its consequences.
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


def _checksum(rows: Rows, batch: RecordBatch, before: int) -> int:
    """Of all rows from the first chunk to this one, without what may change between attempts: times
    and ids, and the queues of rows that do not name one, which depend on the topic's. Of a message
    that comes later these are among its properties."""
    if rows.wanted is not None:
        before = request_checksum((rows.wanted.astype("<i8").tobytes(),), before)
    left_out = NOT_COMPARED if rows.waiting else ()
    return content_checksum(batch.records, batch.sizes, before=before, left_out=left_out)


class SinkSender:
    """Sends chunks in order; `finish` waits for their outcome. Raises ClusterError if the cluster
    has no master for long, SinkError for everything that fails later."""

    def __init__(self, options: WriteOptions, name: WriterName) -> None:
        self.outcomes = Outcomes()
        self.chunk = 0
        self._checksum = 0
        self._stored = 0
        self._waiting = False
        self._options = options
        self._name = name
        self._requests = run(
            RequestPipeline.with_fixed_numbers(
                connection_of(options.cluster),
                name.producer_id,
                name.epoch,
                batch_bytes=options.batch_bytes,
                answer_seconds=min(_ANSWER_SECONDS, options.send_timeout_ms / 1000),
                unique_ids=options.unique_ids,
            ),
            "opening a writer",
        )

    def close(self) -> None:
        """Close at once, without waiting for outcomes."""
        run(self._requests.close(0), "closing a writer")

    def queues_of(self, topic: str) -> int:
        """How many queues of a topic can be written. Raises ClusterError."""
        routes = self._requests.routes
        route = routes.get(topic) or run(routes.load(topic), f"looking at topic {topic}")
        return route.queues

    @property
    def turn(self) -> int:
        """Chooses the queue of rows that do not name one: the same in every attempt."""
        return self._name.partition + self.chunk

    def send(self, rows: Rows) -> None:
        """Send the next chunk; waits while too many requests have no answer."""
        batch = self._framed(rows)
        self._waiting |= rows.waiting
        size = len(batch.records)
        limit = self._requests.max_request_bytes
        if size > limit:
            raise SinkError(
                f"{self._where()}: the request has {size} bytes, the cluster takes "
                f"{limit}: make batchBytes or batchMessages smaller"
            )
        self._wait_for_repeats()
        self._checksum = _checksum(rows, batch, self._checksum)
        request = self._requests.request(
            batch,
            wait=self._options.wait,
            checksum=self._checksum,
            acknowledged=self.outcomes.acknowledged,
            failed=self.outcomes.failed,
        )
        self.outcomes.expect_one()
        try:
            while not self._requests.offer(request, _CHECK_SECONDS):
                self._check()
        except TandemlogError as error:
            raise self._failed(self.outcomes.failure or error) from error
        self.chunk += 1

    def _wait_for_repeats(self) -> None:
        """Wait until all that was stored before is known to be what would be sent now. A master
        that knows another chunk refuses that one alone, and would store those behind it."""
        if self._name.producer_id is None:
            return
        if self.chunk == 1:
            self.finish()
            if self.outcomes.duplicates:
                self._stored = stored_chunks(self._options.cluster, self._name)
        elif self.chunk == self._stored:
            self.finish()

    def finish(self) -> None:
        """Wait until everything is acknowledged."""
        while not self.outcomes.wait(_CHECK_SECONDS):
            self._check()
        if self.outcomes.failure is not None:
            raise self._failed(self.outcomes.failure) from self.outcomes.failure

    def _check(self) -> None:
        """Raise SinkError if waiting is useless: a request failed, or answers stopped coming."""
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
        if self._waiting and isinstance(error, InvalidTopicNameError | BadRecordError):
            return SinkError(f"{self._where()}: {error}; {_OLD_NODE}")
        return SinkError(f"{self._where()}: {error}")

    def _where(self) -> str:
        return f"partition {self._name.partition}, writer {self._name.producer_id or 'unnamed'}"

    def _framed(self, rows: Rows) -> RecordBatch:
        try:
            return self._requests.frame(
                bodies=rows.bodies,
                topics=rows.topics,
                queue_topics=rows.queue_topics,
                queue_ids=rows.queue_ids,
                queue_indexes=rows.entries,
                keys=rows.keys,
                tags=rows.tags,
                own_properties=rows.properties,
                waiting=rows.waiting,
            )
        except (MessageTooLargeError, PropertiesTooLargeError) as error:
            raise RowError(error.record_index, str(error)) from error
        except FormatError as error:
            raise SinkError(f"{self._where()}: chunk {self.chunk}: {error}") from error

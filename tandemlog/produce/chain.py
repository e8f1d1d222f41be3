"""The requests of one producer that have no outcome yet, in order: what to write next, and what
an answer means. No I/O, no clock.

    chain:   [ kept ............ | written, no answer .... | not written on this stream ]
                0 .. kept            .. written                .. end

Idempotence rests on the numbers (epoch, sequence) that a request keeps as long as a node may
have stored it. Everything without an outcome is written again, in order and with the same
numbers, on every new stream; a node that has it responds as the first time. So a broken stream, a
late answer or a new master costs a repetition and never a duplicate.

What an answer does to the request it is for, always the first one written and not answered:

    PUT_OK                    resolved, leaves the chain
    busy, not master, ...     kept for the next stream; what follows is refused as a gap
    outcome unknown           kept: the same numbers ask again
    refused permanently       fails; if a single message is to blame, only that one fails and the
                              rest stays under the same numbers
    gap                       surely not stored, nor anything behind it: new epoch, from 0
    unknown producer          the same, but for what may have been stored by an earlier attempt:
                              the node may have forgotten us, so that fails as unknown
    PUT_OK, or all three,     kept: a master that was deposed does not know what the one after it
    of an older epoch         has stored, and what it stores itself may be in no log that counts

Where the caller gave the epoch, a number says which message it is about: none is ever given twice,
and what would need new ones (a gap, a permanent refusal) ends the producer instead.

A request past its deadline fails towards its caller, as unknown if it may be stored. It stays in
the chain as long as later ones need its number (they may be stored under theirs).
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..cluster.answer_errors import error_from
from ..cluster.newest_epoch import is_current
from ..errors import (
    NodeUnavailableError,
    NotMasterError,
    OutcomeUnknownError,
    PermissionDeniedError,
    ProducerFencedError,
    SequenceGapError,
    TandemlogError,
    UnknownProducerError,
    UnknownTopicError,
)
from ..telemetry.producer_statistics import ProducerCounters
from ..v1 import broker_pb2, common_pb2
from .put_batch import PutBatch

logger = logging.getLogger(__name__)

_UNKNOWN_STATUS = (broker_pb2.FLUSH_DISK_TIMEOUT, broker_pb2.FLUSH_SLAVE_TIMEOUT)


@dataclass(slots=True)
class Numbers:
    """A producer's place in its own sequence. `producer_id` None: requests are not numbered and
    never repeated. `agreed` False: the epoch must be agreed with the master first. `fixed`: the
    caller's epoch, and every request keeps the number that it was given in."""

    producer_id: str | None
    epoch: int = 0
    next_sequence: int = 0
    agreed: bool = True
    fixed: bool = False


class ProducerEndedError(Exception):
    """With fixed numbers: nothing more can be sent, because of `error`."""

    def __init__(self, error: TandemlogError) -> None:
        super().__init__(str(error))
        self.error = error


class Chain:
    """See the module. `release` gets the bytes of every request that leaves, `refused` the requests
    that a node refused permanently; `newest_epoch` is the newest of any master that was heard of;
    `last_error` is why the newest attempt failed."""

    def __init__(
        self,
        numbers: Numbers,
        release: Callable[[int], None],
        refused: Callable[[PutBatch, TandemlogError], None] = lambda batch, error: None,
        counters: ProducerCounters | None = None,
        newest_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        self._newest_epoch = newest_epoch
        self._stream_epoch = 0
        self._counters = counters or ProducerCounters()
        self.numbers = numbers
        self.last_error: TandemlogError | None = None
        self.acknowledged = 0
        self._release = release
        self._tell_refused = refused
        self._batches: deque[PutBatch] = deque()
        self._kept = 0
        self._written = 0
        self._doubts: list[bool] = []
        self._stop: TandemlogError | None = None
        self._renumber = False
        self._forgotten = False
        # of all that was given, where another process may give the same again
        self._content = 0
        self._request_id = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def idempotent(self) -> bool:
        return self.numbers.producer_id is not None

    @property
    def in_flight(self) -> int:
        """Requests written on this stream without an answer."""
        return self._written - self._kept

    @property
    def last_request_id(self) -> int:
        return self._request_id

    @property
    def first_request_id(self) -> int | None:
        """Of the oldest request whose caller still waits; None if no caller waits."""
        return next((batch.request_id for batch in self._batches if not batch.expired), None)

    @property
    def next_deadline(self) -> float | None:
        return min((batch.deadline for batch in self._batches if not batch.expired), default=None)

    def add(self, batch: PutBatch) -> None:
        self._request_id += 1
        batch.request_id = self._request_id
        if self.numbers.fixed:
            self._content = batch.may_be_framed_anew(self._content)
            self._number(batch)
        self._batches.append(batch)

    def stream_opened(self, epoch: int = 0) -> None:
        """A new stream, to the master of `epoch`: everything is to be written again."""
        self._stream_epoch = epoch
        self._counters.streams += 1
        self._kept = self._written = 0
        self._doubts = []
        self._stop = None
        self._prune()
        if self._forgotten:
            self._fail_doubtful()
        if self._renumber or self._forgotten:
            self._start_epoch()

    def to_write(self) -> PutBatch | None:
        """The next request for this stream, numbered, and from now on perhaps stored."""
        if self._stop is not None or self._written >= len(self._batches):
            return None
        batch = self._batches[self._written]
        if batch.sequence is None and self.idempotent:
            self._number(batch)
        self._doubts.append(batch.in_doubt)
        batch.in_doubt = True
        batch.written_in = max(batch.written_in, self._stream_epoch)
        self._written += 1
        return batch

    def _number(self, batch: PutBatch) -> None:
        batch.sequence = self.numbers.next_sequence
        batch.epoch = self.numbers.epoch
        self.numbers.next_sequence += 1

    def received(self, response: broker_pb2.AppendResponse, endpoint: str) -> None:
        """One answer. Raises ProducerFencedError or ProducerEndedError, which end the producer,
        or the reason to open a new stream once everything written has its answer."""
        batch = self._answered(response, endpoint)
        if batch is None:
            return
        self._learn(response.master_epoch)
        doubt = self._doubts.pop(0)
        if response.status != broker_pb2.PUT_OK:
            error = self._believed(batch, response, _error_of(response, endpoint), endpoint)
            self._refused(batch, error, doubt)
        elif is_current(response.master_epoch or self._stream_epoch, self._newest_epoch()):
            self._resolve(batch, response)
        else:
            error = self._of_an_older_epoch(response, endpoint)
            self._refused(batch, error, doubt)
            self._stop = self._stop or error  # also where a request is never repeated
        if self._stop is not None and not self.in_flight:
            raise self._stop

    def _learn(self, epoch: int) -> None:
        """The master may have another term than the one that it was asked in."""
        if epoch > self._stream_epoch:
            self._stream_epoch = epoch
            for index in range(self._kept, self._written):
                self._batches[index].written_in = max(self._batches[index].written_in, epoch)

    def _believed(
        self,
        batch: PutBatch,
        response: broker_pb2.AppendResponse,
        error: TandemlogError,
        endpoint: str,
    ) -> TandemlogError:
        """What is known after this refusal: nothing for ever, if it comes from before an election
        that was heard of, or from before the last writing. A node of 0.1 says no epoch: it is that
        of which it called itself the master."""
        if error.retryable or isinstance(error, OutcomeUnknownError):
            return error
        epoch = response.master_epoch or response.error.master_epoch or self._stream_epoch
        newest = self._newest_epoch()
        if may_judge(epoch, batch.written_in, newest):
            return error
        return NotMasterError(
            f"{endpoint} refused this as the master of epoch {epoch}, but it may have been stored "
            f"in epoch {batch.written_in}, and epoch {newest} was seen: {error}"
        )

    def _of_an_older_epoch(
        self, response: broker_pb2.AppendResponse, endpoint: str
    ) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"{endpoint} stored this as the master of epoch "
            f"{response.master_epoch or self._stream_epoch}, but epoch {self._newest_epoch()} was "
            "seen: the master of that epoch may not have it"
        )

    def cluster_left(self) -> None:
        """The streams before were to another cluster: in which epoch of that one something was
        written says nothing in this one."""
        self._stream_epoch = 0
        for batch in self._batches:
            batch.written_in = 0

    def stream_ended(self) -> None:
        """No further answer will come. Without numbers nothing that was written may be written
        again: its outcome stays unknown."""
        written = [self._batches[index] for index in range(self._kept, self._written)]
        self._counters.retries += len(written) if self.idempotent else 0
        for batch in written:
            batch.unanswered = True
            if not self.idempotent:
                self._batches.remove(batch)
                self._fail(batch, OutcomeUnknownError(f"no answer: {self.last_error}"))
        self._kept = self._written = 0
        self._doubts = []

    def expire(self, now: float, seconds: float) -> None:
        """Fails what is past its deadline, `seconds` after it was given."""
        for index in reversed(range(len(self._batches))):
            batch = self._batches[index]
            if batch.deadline > now or batch.expired:
                continue
            batch.expired = True
            late = self._late(batch, seconds)
            self._counters.failed(batch.count, late)
            batch.sink.failed(late)
            if not batch.in_doubt:
                # Its caller was told that it is not stored: it must not be written again. What
                # stands behind it was not stored either, and finds its number a gap.
                self._remove(index)
        if not self._written:
            self._prune()

    def _remove(self, index: int) -> None:
        """Of a request that is not in flight."""
        self._release(self._batches[index].byte_size)
        del self._batches[index]
        self._kept -= index < self._kept
        self._written -= index < self._written

    def fail_all(self, error: TandemlogError) -> None:
        """Everything fails, as unknown if it may be stored."""
        batches, self._batches = list(self._batches), deque()
        self._kept = self._written = 0
        self._doubts = []
        for batch in batches:
            doubt = batch.in_doubt or batch.unanswered
            self._fail(batch, _unknown(error) if doubt else error)

    def _answered(self, response: broker_pb2.AppendResponse, endpoint: str) -> PutBatch | None:
        """The request that an answer must be for; None for an answer that came before."""
        expected = self._batches[self._kept] if self.in_flight else None
        if expected is not None and response.request_id == expected.request_id:
            return expected
        first_unknown = expected.request_id if expected is not None else self._request_id + 1
        if response.request_id < first_unknown:
            logger.debug("answered again: request_id=%d node=%s", response.request_id, endpoint)
            return None
        raise NodeUnavailableError(
            f"{endpoint}: answered request {response.request_id} out of order, "
            f"{first_unknown} was next"
        )

    def _resolve(self, batch: PutBatch, response: broker_pb2.AppendResponse) -> None:
        self._drop(batch)
        self.acknowledged += 1
        self.last_error = None
        if not batch.expired:
            self._counters.acknowledged(
                batch.count,
                batch.byte_size,
                batch.deadline,
                duplicate=response.duplicate,
                queues=batch.queues,
            )
            batch.sink.acknowledged(batch.answer(response, self.numbers.producer_id))

    def _refused(self, batch: PutBatch, error: TandemlogError, doubt: bool) -> None:
        if isinstance(error, ProducerFencedError):
            batch.in_doubt = doubt
            raise error
        if self.numbers.fixed and self._is_final(error):
            batch.in_doubt = doubt
            raise ProducerEndedError(error)
        if isinstance(error, UnknownProducerError):
            batch.in_doubt = doubt
            self._forgotten = self._forgotten or self._stop is None
            self._keep(error)
        elif isinstance(error, SequenceGapError):
            batch.in_doubt = False
            self._renumber = self._renumber or self._stop is None
            self._keep(error)
        elif isinstance(error, OutcomeUnknownError):
            if self.idempotent:
                self._keep(error)
            else:
                self._drop(batch)
                self._fail(batch, error, leave=False)
        elif error.retryable:
            batch.in_doubt = doubt
            self._keep(error)
        else:
            self._refused_for_good(batch, error, doubt)

    def _is_final(self, error: TandemlogError) -> bool:
        """Whether fixed numbers cannot continue after this answer. A gap behind a request that has
        to wait does not count."""
        if isinstance(error, SequenceGapError | UnknownProducerError):
            return self._stop is None
        return not (error.retryable or isinstance(error, OutcomeUnknownError))

    def _refused_for_good(self, batch: PutBatch, error: TandemlogError, doubt: bool) -> None:
        self._tell_refused(batch, error)
        guilty = [] if doubt or batch.expired else _guilty(batch, error)
        if guilty and len(guilty) < batch.count and batch.sink.divisible:
            rest = batch.without(guilty, error)
            self._counters.failed(len(guilty), error)
            rest.sequence, rest.epoch = batch.sequence, batch.epoch
            rest.unanswered = batch.unanswered
            rest.written_in = batch.written_in
            self._batches[self._kept] = rest
            self._release(batch.byte_size - rest.byte_size)
            self._keep(error)
            return
        self._drop(batch)
        if not doubt and batch.sequence == self.numbers.next_sequence - 1:
            # The number is free again. With doubt it is not: the node may have the request, and
            # would take the next one for its repetition.
            self.numbers.next_sequence -= 1
        doubt = doubt or batch.unanswered
        self._fail(batch, _unknown(error) if doubt else error, leave=False)

    def _keep(self, error: TandemlogError) -> None:
        """The request that was answered waits for the next stream, and this one for its end."""
        self._kept += 1
        if self._stop is None:
            self._stop = error
            if error.retryable or isinstance(error, OutcomeUnknownError):
                self.last_error = error

    def _drop(self, batch: PutBatch) -> None:
        """The request that was answered leaves the chain."""
        del self._batches[self._kept]
        self._written -= 1
        self._release(batch.byte_size)

    def _fail(self, batch: PutBatch, error: TandemlogError, *, leave: bool = True) -> None:
        if leave:
            self._release(batch.byte_size)
        if not batch.expired:
            self._counters.failed(batch.count, error)
            batch.sink.failed(error)

    def _late(self, batch: PutBatch, seconds: float) -> TandemlogError:
        reason = self.last_error or NodeUnavailableError("no node answered")
        text = f"no acknowledgement within delivery_timeout_ms ({seconds:g} s); last: {reason}"
        if batch.in_doubt or batch.unanswered:
            return OutcomeUnknownError(f"the message may or may not be stored: {text}")
        if isinstance(reason, OutcomeUnknownError):
            return NodeUnavailableError(text)
        return reason.restated(text)

    def _prune(self) -> None:
        """Drops expired requests whose numbers are not needed: nothing after them may be
        stored. If one of them was not, the next number is a gap, and a new epoch begins."""
        if any(batch.in_doubt and not batch.expired for batch in self._batches):
            return
        for batch in [batch for batch in self._batches if batch.expired]:
            self._batches.remove(batch)
            self._release(batch.byte_size)

    def _fail_doubtful(self) -> None:
        """No node can tell any more what was stored of these; sent again they might come twice."""
        reason = "the node does not know this producer any more"
        for batch in [each for each in self._batches if each.in_doubt or each.unanswered]:
            self._batches.remove(batch)
            self._fail(batch, OutcomeUnknownError(f"it may or may not be stored: {reason}"))

    def _start_epoch(self) -> None:
        logger.info(
            "producer numbers start again: producer_id=%s epoch=%d reason=%s",
            self.numbers.producer_id,
            self.numbers.epoch + 1,
            self.last_error,
        )
        self._renumber = self._forgotten = False
        self.numbers.epoch += 1
        self.numbers.next_sequence = 0
        self.numbers.agreed = False
        for batch in self._batches:
            batch.sequence = None
            batch.in_doubt = False


def may_judge(epoch: int, written_in: int, newest: int) -> bool:
    """Whether a master of `epoch` knows what became of a request that was last written to one of
    `written_in`, when `newest` was heard of."""
    return epoch >= written_in and is_current(epoch, newest)


def _unknown(error: TandemlogError) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"an earlier attempt may have stored the message, the last one failed: {error}"
    )


def _error_of(response: broker_pb2.AppendResponse, endpoint: str) -> TandemlogError:
    if response.status in _UNKNOWN_STATUS:
        name = broker_pb2.PutStatus.Name(response.status)
        return OutcomeUnknownError(f"{endpoint}: {name}: {response.error.message or 'stored'}")
    if not response.error.code:
        return error_from(
            common_pb2.Error(
                code=common_pb2.INTERNAL,
                message=f"put status {broker_pb2.PutStatus.Name(response.status)}",
            ),
            endpoint,
        )
    return error_from(response.error, endpoint)


def _guilty(batch: PutBatch, error: TandemlogError) -> list[int]:
    """The messages that a refusal is about; empty if it is about the whole request."""
    index = error.record_index
    if not 0 <= index < batch.count:
        return []
    if isinstance(error, UnknownTopicError | PermissionDeniedError):  # all of that topic are
        return batch.messages_of_topic(batch.topic_of(index))
    return [index]

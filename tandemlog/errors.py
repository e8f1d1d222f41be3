"""The errors of the client: one class for each case that a caller may want to handle separately.

    TandemlogError
      InvalidMessageError       the message itself: nothing was sent
      RefusedError              a node said no: nothing was stored by this answer
      UnavailableError          the cluster cannot do it now: a web service answers 503
        RetryableError          refused, and a node may say yes later, or another one may
        NodeUnavailableError    no answer: it is unknown what the node did
      OutcomeUnknownError       a put that may or may not be in the log
      SendManyError             some of many were not acknowledged

Each carries the details from the node: the field, the limit and the value above it. "Retryable" is
for the client's own retries; when such an error reaches the caller, they are used up.
"""

from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from .message import SendManyResult


class TandemlogError(Exception):
    """Base of all errors of this package.

    `field`, `limit` and `actual` name the wrong value, if it was one; `record_index` the message of
    a batch (-1: not about one); `hint` an endpoint to ask instead; `reason` tells in a few words
    what ended a call without a response.
    """

    retryable: ClassVar[bool] = False
    """Whether the same request may succeed later."""
    elsewhere: ClassVar[bool] = False
    """Whether another node should be asked."""

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        limit: int = 0,
        actual: int = 0,
        record_index: int = -1,
        hint: str = "",
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.field = field
        self.limit = limit
        self.actual = actual
        self.record_index = record_index
        self.hint = hint
        self.reason = reason

    def restated(self, message: str) -> Self:
        """The same error with a more detailed message."""
        return type(self)(
            message,
            field=self.field,
            limit=self.limit,
            actual=self.actual,
            record_index=self.record_index,
            hint=self.hint,
            reason=self.reason,
        )

    def copy(self) -> Self:
        """One more of the same: an error that is raised to several callers must not be one
        object, whose traceback would grow with each."""
        error = self.restated(str(self))
        error.__cause__ = self.__cause__
        return error


class ClientClosedError(TandemlogError):
    """The client was closed, or never opened."""


class ForkedClientError(ClientClosedError):
    """The client, its stream or its future came from the parent by a fork, where it still works.
    Make a new one in the child."""


class EventLoopError(TandemlogError):
    """A client for asyncio that is used in another event loop than the one in which it was first
    used. Make one in each loop."""


class MonkeyPatchedError(TandemlogError):
    """gevent or eventlet has replaced this process's threads: a synchronous client would wait for
    ever for a thread that cannot run while it waits."""


class SecurityError(TandemlogError):
    """Certificates, a key or a token that this client cannot use: a file that cannot be read or
    holds something else, or a token that would travel in clear text. Nothing was sent."""


class InvalidMessageError(TandemlogError, ValueError):
    """A message that cannot be sent; `field` is the wrong part. Nothing was sent."""


class ReservedPropertyError(InvalidMessageError):
    """A property name that the store keeps for itself."""


class BufferFullError(TandemlogError):
    """No room for more unacknowledged bytes within the time allowed. The message was not sent."""


class UnavailableError(TandemlogError):
    """The cluster cannot do it now, and the same request may succeed later: no master, no answer, a
    refusal that may pass. A web service answers 503 to it."""

    retryable = True


class NodeUnavailableError(UnavailableError):
    """A node did not respond: it cannot be reached, went away, or was silent for too long."""

    elsewhere = True


class NoMasterError(NodeUnavailableError):
    """No reachable node reports that it is the master."""


class NoNodeError(NodeUnavailableError):
    """No node of the wanted role can be reached."""


class OutcomeUnknownError(TandemlogError):
    """A put that may or may not be stored. Sending the message again may store it twice."""


class SendManyError(TandemlogError):
    """Not all of many messages were acknowledged. `result` has the positions of those that were (-1
    for the others), `errors` the errors of the requests that failed; the messages of an
    OutcomeUnknownError may be stored."""

    def __init__(
        self, message: str, *, result: "SendManyResult", errors: tuple[TandemlogError, ...]
    ) -> None:
        super().__init__(message)
        self.result = result
        self.errors = errors


class RefusedError(TandemlogError):
    """A node refused a request and did nothing."""


class RetryableError(RefusedError, UnavailableError):
    """A refusal that may pass."""

    retryable = True


class NotMasterError(RetryableError):
    """A put or a commit reached a node that is not the master; `hint` is the master, if known."""

    elsewhere = True


class ShuttingDownError(RetryableError):
    """The node is stopping."""

    elsewhere = True


class BusyError(RetryableError):
    """Back-pressure: the node has no room for this now, or its disk cannot keep up."""


class NotInSyncError(RetryableError):
    """Fewer in-sync replicas than the cluster requires for a put. A master that was cut off from
    the others, and deposed meanwhile, gives this answer as well: another one may be found."""

    elsewhere = True


class StoreReadOnlyError(RetryableError):
    """The store accepts no writes: an fsync failed, or the node is stopping."""

    elsewhere = True


class DiskFullError(RetryableError):
    """The node's disk is full."""


class UnreadableError(RetryableError):
    """The node's disk cannot read these messages; another node may have them."""

    elsewhere = True


class CoordinatorUnavailableError(RetryableError):
    """The node cannot reach the coordinator, so the cluster's record was neither read nor changed;
    another node may reach it."""

    elsewhere = True


class ChangeRefusedError(RefusedError):
    """A switch, a failover or a change of the members that the cluster does not allow now."""


class AuthenticationError(RefusedError):
    """The node does not know the caller: no token and no client certificate, or one that it does
    not accept. Also a certificate of the node that this client does not accept."""


class PermissionDeniedError(RefusedError):
    """The node knows the caller, who may not do this; `field` is the right that is missing."""


class UnknownTopicError(RefusedError):
    """A topic that does not exist."""


class TopicExistsError(RefusedError):
    """A topic that exists already; pass `update` to change it."""


class QueuesNotEmptyError(RefusedError):
    """An update that would remove queues that hold messages: clients could not pull them."""


class TopicNotWritableError(RefusedError):
    """A topic whose permission or number of queues allows no puts."""


class UnknownQueueError(RefusedError):
    """A queue that the topic does not have; `limit` is the number of its queues."""


class UnknownGroupError(RefusedError):
    """A consumer group that does not exist."""


class LeaseLostError(RefusedError):
    """A message of a work queue was settled too late: its lease ended, and it comes again, or has
    come to another consumer already. What was done with it here does not count."""


class DeliverySettledError(RefusedError):
    """A delivery of a work queue that has its outcome already gets another one."""


class FencedMemberError(RefusedError):
    """The master does not take this member of a group for the owner (any more): its session timed
    out, or the queue was given to another member. What it commits late does not count. `refused`
    are the queues, by topic and number, whose offsets were not taken; the others were."""

    refused: tuple[tuple[str, int], ...] = ()


class FencedInstanceError(RefusedError):
    """Another process joined the group with the same `instance_id`, and took over."""


class GroupHasMembersError(RefusedError):
    """Offsets of queues that members of the group own cannot be set by hand: stop them first."""


class InvalidTopicNameError(RefusedError, InvalidMessageError):
    """A name that no topic can have."""


class InvalidArgumentError(RefusedError, ValueError):
    """A request that no node can fulfil; `field` is the wrong part."""


class MessageTooLargeError(RefusedError, InvalidMessageError):
    """A body above the cluster's limit: `actual` bytes, `limit` allowed."""


class PropertiesTooLargeError(RefusedError, InvalidMessageError):
    """Properties above what a record can hold: `actual` bytes, `limit` allowed."""


class BatchTooLargeError(RefusedError):
    """A request above the node's limit; make the producer's batch_bytes smaller."""


class BadRecordError(RefusedError):
    """Bytes that the node does not accept as a record."""


class OffsetOutOfRangeError(RefusedError):
    """A position that the log or the queue does not hold, or no longer holds. `refused`: of a
    commit, the queues whose offsets were not taken; the others were."""

    refused: tuple[tuple[str, int], ...] = ()


class LogCutError(OffsetOutOfRangeError):
    """A position behind messages that the cluster's log does not hold (any more): after an unclean
    failover, in a restored or new store. Other messages may be there under the same offsets, and
    reading continues with the first of them."""


class NotWaitingError(RefusedError):
    """A message that cannot be called back: it came already, or the cluster knows of no message
    that waits under this handle."""


class UnknownTransactionError(RefusedError):
    """Not all messages of a transaction are stored, or it ended too long ago to be known."""


class TransactionDecidedError(RefusedError):
    """The transaction has ended the other way: an operator or a check has decided it, or it was
    given up."""


class TransactionAbortedError(RefusedError):
    """A message of the transaction may not be stored, so the transaction is rolled back."""


class TransactionEndedError(TandemlogError):
    """The transaction has been committed or rolled back here: begin another one."""


class ProducerError(RefusedError):
    """The sequence of a producer's requests is broken."""


class SequenceGapError(ProducerError):
    """A request came out of order: `limit` was expected, `actual` came. Retried inside."""


class UnknownProducerError(ProducerError):
    """The store does not know the producer (any more). Retried inside."""


class SequenceConflictError(ProducerError):
    """Two requests of one producer have the same number: two processes use one producer id."""


class ProducerFencedError(ProducerError):
    """A newer producer with the same id took over. This one cannot send any more."""


class InternalError(RefusedError):
    """The request failed inside the node; the node's log has the reason."""

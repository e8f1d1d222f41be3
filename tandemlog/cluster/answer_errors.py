"""The exception for what a node answered, or for a call that ended without an answer."""

from typing import TYPE_CHECKING

from ..errors import (
    AuthenticationError,
    BadRecordError,
    BatchTooLargeError,
    BusyError,
    ChangeRefusedError,
    CoordinatorUnavailableError,
    DiskFullError,
    FencedInstanceError,
    FencedMemberError,
    GroupHasMembersError,
    InternalError,
    InvalidArgumentError,
    InvalidTopicNameError,
    LogCutError,
    MessageTooLargeError,
    NodeUnavailableError,
    NotInSyncError,
    NotMasterError,
    NotWaitingError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    PermissionDeniedError,
    ProducerFencedError,
    PropertiesTooLargeError,
    QueuesNotEmptyError,
    RefusedError,
    SequenceConflictError,
    SequenceGapError,
    ShuttingDownError,
    StoreReadOnlyError,
    TandemlogError,
    TopicExistsError,
    TransactionDecidedError,
    UnknownGroupError,
    UnknownProducerError,
    UnknownQueueError,
    UnknownTopicError,
    UnknownTransactionError,
    UnreadableError,
)
from ..v1 import common_pb2

if TYPE_CHECKING:
    import grpc

_CLASSES: dict[int, type[TandemlogError]] = {
    common_pb2.NOT_MASTER: NotMasterError,
    common_pb2.UNKNOWN_TOPIC: UnknownTopicError,
    common_pb2.UNKNOWN_QUEUE: UnknownQueueError,
    common_pb2.UNKNOWN_GROUP: UnknownGroupError,
    common_pb2.INVALID_TOPIC_NAME: InvalidTopicNameError,
    common_pb2.INVALID_ARGUMENT: InvalidArgumentError,
    common_pb2.MESSAGE_TOO_LARGE: MessageTooLargeError,
    common_pb2.PROPERTIES_TOO_LARGE: PropertiesTooLargeError,
    common_pb2.BAD_RECORD: BadRecordError,
    common_pb2.BATCH_TOO_LARGE: BatchTooLargeError,
    common_pb2.SEQUENCE_GAP: SequenceGapError,
    common_pb2.PRODUCER_FENCED: ProducerFencedError,
    common_pb2.UNKNOWN_PRODUCER: UnknownProducerError,
    common_pb2.STORE_READ_ONLY: StoreReadOnlyError,
    common_pb2.DISK_FULL: DiskFullError,
    common_pb2.BUSY: BusyError,
    common_pb2.NOT_IN_SYNC: NotInSyncError,
    common_pb2.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    common_pb2.TOPIC_EXISTS: TopicExistsError,
    common_pb2.OUTCOME_UNKNOWN: OutcomeUnknownError,
    common_pb2.SHUTTING_DOWN: ShuttingDownError,
    common_pb2.INTERNAL: InternalError,
    common_pb2.SEQUENCE_CONFLICT: SequenceConflictError,
    common_pb2.QUEUES_NOT_EMPTY: QueuesNotEmptyError,
    common_pb2.UNREADABLE: UnreadableError,
    common_pb2.COORDINATOR_UNAVAILABLE: CoordinatorUnavailableError,
    common_pb2.CHANGE_REFUSED: ChangeRefusedError,
    common_pb2.UNAUTHENTICATED: AuthenticationError,
    common_pb2.PERMISSION_DENIED: PermissionDeniedError,
    common_pb2.FENCED_MEMBER: FencedMemberError,
    common_pb2.FENCED_INSTANCE: FencedInstanceError,
    common_pb2.GROUP_HAS_MEMBERS: GroupHasMembersError,
    common_pb2.LOG_CUT: LogCutError,
    common_pb2.NOT_WAITING: NotWaitingError,
    common_pb2.UNKNOWN_TRANSACTION: UnknownTransactionError,
    common_pb2.TRANSACTION_DECIDED: TransactionDecidedError,
}


def error_from(error: common_pb2.Error, endpoint: str) -> TandemlogError:
    """The exception for the error that the node at `endpoint` returned; a code that this version
    does not know becomes a RefusedError with the node's message."""
    kind = _CLASSES.get(error.code, RefusedError)
    return kind(
        f"{endpoint}: {error.message or common_pb2.ErrorCode.Name(error.code)}",
        field=error.field,
        limit=error.limit,
        actual=error.actual,
        record_index=error.record_index,
        hint=error.hint,
    )


_NO_ANSWER = (
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "CANCELLED",
    "UNKNOWN",
    "INTERNAL",
    "ABORTED",
)


_NO_HANDSHAKE = ("Socket closed", "SETTINGS frame", "Failed parsing HTTP/2")


def error_from_rpc(status: "grpc.StatusCode", details: str | None, endpoint: str) -> TandemlogError:
    """The exception for a call that ended without a response."""
    why = " ".join((details or "no details").split())
    text = f"{endpoint}: {status.name.lower().replace('_', ' ')}: {why}"
    reason = _short_reason(status, why)
    if status.name in _NO_ANSWER:
        return NodeUnavailableError(text, reason=reason)
    if status.name == "RESOURCE_EXHAUSTED":
        return BatchTooLargeError(text, field="request", reason=reason)
    if status.name == "UNIMPLEMENTED":
        return InvalidArgumentError(
            f"{text}; is this a tandemlog node, and a current one?", reason=reason
        )
    if status.name == "UNAUTHENTICATED":
        return AuthenticationError(text, reason=reason)
    if status.name == "PERMISSION_DENIED":
        return PermissionDeniedError(text, reason=reason)
    return RefusedError(text, reason=reason)


def _short_reason(status: "grpc.StatusCode", why: str) -> str:
    """The end of gRPC's sentence, which names every layer that the call went through."""
    if status.name == "DEADLINE_EXCEEDED":
        return "no answer in time"
    if status.name == "UNIMPLEMENTED":
        return "no tandemlog node"
    if "errors resolving" in why or "DNS resolution failed" in why:
        return "name not resolved"
    last = why.rpartition(": ")[2]
    last = last[:1].lower() + last[1:]
    # The peer accepts the connection but does not speak plain HTTP/2: nodes do, TLS does not.
    if "failed to connect" in why and any(mark in why for mark in _NO_HANDSHAKE):
        return f"no gRPC without TLS there: {last}"
    return last

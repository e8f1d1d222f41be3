"""One table from exceptions to the errors that a client gets.

    exception --> ErrorCode (stable, for programs)   --> PutStatus (RocketMQ's, for a put)
                  message   (for people)

The lower layers know nothing of gRPC: they raise typed errors, and only this table translates.
A put that was refused before anything was stored has a status that says "not stored"; if the
records may or may not survive, the code is OUTCOME_UNKNOWN and nothing else.

Messages quote what was sent. The code that writes one shortens names (`words.quoted`); this module
bounds every text of a response, wherever it comes from.

An error that has been reported keeps no traceback. The frames of a traceback hold the request, and
one of them often holds the error again (a future, a put in progress): then all of it would stay in
memory until the garbage collector runs, which it does rarely (memory_at_rest.py).
"""

import logging
from typing import TypeAlias

from tandemlog.archive.errors import ArchiveDamagedError, ArchiveError
from tandemlog.format.errors import FormatError
from tandemlog.format.words import shortened
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.ha.coordinator.coordinator_errors import CoordinatorError, UnknownOutcomeError
from tandemlog_server.ha.election.requests import ChangeRefusedError
from tandemlog_server.storage.errors import (
    BatchRefusedError,
    CorruptStoreError,
    DiskFullError,
    FlushFailedError,
    OffsetOutOfRangeError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreReadOnlyError,
    UnreadableError,
)
from tandemlog_server.storage.metadata.topics import MetadataError
from tandemlog_server.storage.reads.results import NoRecordError, TooManyEntriesError
from tandemlog_server.storage.services.transaction_errors import (
    HalvesUnreadableError,
    TransactionDecidedError,
    TransactionsNotReadyError,
    UnknownTransactionError,
)

from .access.access_refusals import DeniedError, NotKnownError, OverLimitError

logger = logging.getLogger(__name__)

Code: TypeAlias = common_pb2.ErrorCode.ValueType
Status: TypeAlias = broker_pb2.PutStatus.ValueType


class RequestRefusedError(Exception):
    """A request that the node itself refuses; the parts are those of tandemlog.v1.Error."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        field: str = "",
        limit: int = 0,
        actual: int = 0,
        record_index: int = -1,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.field = field
        self.limit = limit
        self.actual = actual
        self.record_index = record_index
        self.hint = hint


def check_count(field: str, actual: int, limit: int) -> None:
    """Raises RequestRefusedError for a list in a request that is too long."""
    if actual > limit:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT,
            f"{field} may have at most {limit} entries, not {actual}",
            field=field,
            limit=limit,
            actual=actual,
        )


# The first class that fits counts, so a subclass comes before its base.
_TABLE: tuple[tuple[type[Exception], Code], ...] = (
    (FlushFailedError, common_pb2.STORE_READ_ONLY),
    (DiskFullError, common_pb2.DISK_FULL),
    (StoreReadOnlyError, common_pb2.STORE_READ_ONLY),
    (StoreClosedError, common_pb2.SHUTTING_DOWN),
    (StoreBusyError, common_pb2.BUSY),
    (OffsetOutOfRangeError, common_pb2.OFFSET_OUT_OF_RANGE),
    (UnreadableError, common_pb2.UNREADABLE),
    (CorruptStoreError, common_pb2.INTERNAL),
    (NoRecordError, common_pb2.OFFSET_OUT_OF_RANGE),
    (TooManyEntriesError, common_pb2.INVALID_ARGUMENT),
    (TransactionDecidedError, common_pb2.TRANSACTION_DECIDED),
    (UnknownTransactionError, common_pb2.UNKNOWN_TRANSACTION),
    (TransactionsNotReadyError, common_pb2.NOT_IN_SYNC),
    (HalvesUnreadableError, common_pb2.UNREADABLE),
    (StoreError, common_pb2.INTERNAL),
    (ArchiveDamagedError, common_pb2.UNREADABLE),
    (ArchiveError, common_pb2.BUSY),
    (FormatError, common_pb2.INVALID_ARGUMENT),
    (ChangeRefusedError, common_pb2.CHANGE_REFUSED),
    (UnknownOutcomeError, common_pb2.OUTCOME_UNKNOWN),
    (NotKnownError, common_pb2.UNAUTHENTICATED),
    (DeniedError, common_pb2.PERMISSION_DENIED),
    (OverLimitError, common_pb2.BUSY),
    (CoordinatorError, common_pb2.COORDINATOR_UNAVAILABLE),
)

# RocketMQ's status for a put that was refused with a code; any other code: UNKNOWN_ERROR.
_PUT_STATUS: dict[int, Status] = {
    common_pb2.NOT_MASTER: broker_pb2.SERVICE_NOT_AVAILABLE,
    common_pb2.CHANGE_REFUSED: broker_pb2.SERVICE_NOT_AVAILABLE,
    common_pb2.STORE_READ_ONLY: broker_pb2.SERVICE_NOT_AVAILABLE,
    common_pb2.DISK_FULL: broker_pb2.SERVICE_NOT_AVAILABLE,
    common_pb2.SHUTTING_DOWN: broker_pb2.SERVICE_NOT_AVAILABLE,
    common_pb2.BUSY: broker_pb2.OS_PAGE_CACHE_BUSY,
    common_pb2.NOT_IN_SYNC: broker_pb2.IN_SYNC_REPLICAS_NOT_ENOUGH,
    common_pb2.PROPERTIES_TOO_LARGE: broker_pb2.PROPERTIES_SIZE_EXCEEDED,
    common_pb2.MESSAGE_TOO_LARGE: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.BATCH_TOO_LARGE: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.BAD_RECORD: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.INVALID_ARGUMENT: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.INVALID_TOPIC_NAME: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.UNKNOWN_TOPIC: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.UNKNOWN_QUEUE: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.SEQUENCE_GAP: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.SEQUENCE_CONFLICT: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.PRODUCER_FENCED: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.UNKNOWN_PRODUCER: broker_pb2.MESSAGE_ILLEGAL,
    common_pb2.PERMISSION_DENIED: broker_pb2.MESSAGE_ILLEGAL,
}


FOR_EVER = frozenset(
    {
        common_pb2.UNKNOWN_TOPIC,
        common_pb2.UNKNOWN_QUEUE,
        common_pb2.UNKNOWN_GROUP,
        common_pb2.SEQUENCE_GAP,
        common_pb2.SEQUENCE_CONFLICT,
        common_pb2.PRODUCER_FENCED,
        common_pb2.UNKNOWN_PRODUCER,
        common_pb2.TOPIC_EXISTS,
        common_pb2.QUEUES_NOT_EMPTY,
        common_pb2.FENCED_MEMBER,
        common_pb2.FENCED_INSTANCE,
        common_pb2.GROUP_HAS_MEMBERS,
        common_pb2.LOG_CUT,
        common_pb2.NOT_WAITING,
        common_pb2.UNKNOWN_TRANSACTION,
        common_pb2.TRANSACTION_DECIDED,
    }
)
"""Facts of the log, the tables and the groups, on which a caller acts without asking again. Only a
master that knows that it leads may state them (services/master_answers.py)."""


def is_of_the_store(problem: Exception, code: int) -> bool:
    """Whether this refusal is one of those: by its code, or by what the store says of it."""
    return code in FOR_EVER or (isinstance(problem, BatchRefusedError) and problem.of_the_store)


def not_sure() -> RequestRefusedError:
    """Of a master that cannot know now whether another one has been elected."""
    return RequestRefusedError(
        common_pb2.NOT_IN_SYNC, "this master is not sure that it still leads: try again in a moment"
    )


def error_of(problem: Exception) -> common_pb2.Error:
    """The error that a client gets for `problem`, which loses its traceback. If no row matches, the
    traceback is logged."""
    error = _error_of(problem)
    problem.__traceback__ = None
    error.message = shortened(error.message)
    return error


def _error_of(problem: Exception) -> common_pb2.Error:
    error = common_pb2.Error(code=_code_of(problem), message=str(problem), record_index=-1)
    if isinstance(problem, RequestRefusedError):
        error.hint = problem.hint
    if isinstance(problem, RequestRefusedError | BatchRefusedError):
        error.record_index = problem.record_index
    if isinstance(problem, RequestRefusedError | BatchRefusedError | OverLimitError):
        error.field, error.limit, error.actual = problem.field, problem.limit, problem.actual
    elif isinstance(problem, MetadataError):
        error.field = problem.field
    elif isinstance(problem, DeniedError):
        error.field = problem.right.value
    elif isinstance(problem, OffsetOutOfRangeError):
        error.field = "physical_offset"
        error.actual = problem.offset
        error.limit = problem.maximum if problem.offset > problem.maximum else problem.minimum
    return error


def put_status_of(code: int) -> Status:
    """The status of a put that was refused with `code`."""
    return _PUT_STATUS.get(code, broker_pb2.UNKNOWN_ERROR)


def _code_of(problem: Exception) -> Code:
    if isinstance(problem, RequestRefusedError):
        return problem.code
    if isinstance(problem, MetadataError | BatchRefusedError):
        return common_pb2.ErrorCode.Value(problem.code)
    for kind, code in _TABLE:
        if isinstance(problem, kind):
            return code
    logger.error("unexpected error in a request", exc_info=problem)
    return common_pb2.INTERNAL

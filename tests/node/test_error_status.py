"""Every error of the layers below has its code and its put status."""

import pytest

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.error_status import RequestRefusedError, error_of, put_status_of
from tandemlog_server.storage.errors import (
    BatchRefusedError,
    CorruptStoreError,
    DiskFullError,
    FlushFailedError,
    OffsetOutOfRangeError,
    StoreBusyError,
    StoreClosedError,
    StoreReadOnlyError,
    UnreadableError,
)
from tandemlog_server.storage.metadata.topics import MetadataError


@pytest.mark.parametrize(
    ("problem", "code", "status"),
    [
        (StoreReadOnlyError("a slave"), "STORE_READ_ONLY", "SERVICE_NOT_AVAILABLE"),
        (FlushFailedError("EIO"), "STORE_READ_ONLY", "SERVICE_NOT_AVAILABLE"),
        (DiskFullError("91 %"), "DISK_FULL", "SERVICE_NOT_AVAILABLE"),
        (StoreClosedError("closing"), "SHUTTING_DOWN", "SERVICE_NOT_AVAILABLE"),
        (StoreBusyError("slow disk"), "BUSY", "OS_PAGE_CACHE_BUSY"),
        (CorruptStoreError("f", 3, "bad"), "INTERNAL", "UNKNOWN_ERROR"),
        (UnreadableError("f", 0, 4096, "I/O error"), "UNREADABLE", "UNKNOWN_ERROR"),
        (OSError("what"), "INTERNAL", "UNKNOWN_ERROR"),
        (BatchRefusedError("BAD_RECORD", "magic", "bad"), "BAD_RECORD", "MESSAGE_ILLEGAL"),
        (
            BatchRefusedError("PROPERTIES_TOO_LARGE", "properties", "big"),
            "PROPERTIES_TOO_LARGE",
            "PROPERTIES_SIZE_EXCEEDED",
        ),
        (BatchRefusedError("SEQUENCE_GAP", "sequence", "gap"), "SEQUENCE_GAP", "MESSAGE_ILLEGAL"),
        (MetadataError("TOPIC_EXISTS", "name", "there"), "TOPIC_EXISTS", "UNKNOWN_ERROR"),
        (MetadataError("QUEUES_NOT_EMPTY", "queues", "2"), "QUEUES_NOT_EMPTY", "UNKNOWN_ERROR"),
        (
            RequestRefusedError(common_pb2.NOT_IN_SYNC, "1 of 2"),
            "NOT_IN_SYNC",
            "IN_SYNC_REPLICAS_NOT_ENOUGH",
        ),
    ],
)
def test_codes_and_statuses(problem: Exception, code: str, status: str) -> None:
    error = error_of(problem)
    assert common_pb2.ErrorCode.Name(error.code) == code
    assert broker_pb2.PutStatus.Name(put_status_of(error.code)) == status
    assert error.message


def test_a_refused_batch_keeps_its_parts() -> None:
    error = error_of(
        BatchRefusedError("MESSAGE_TOO_LARGE", "body", "big", limit=1, actual=2, record_index=3)
    )
    assert (error.field, error.limit, error.actual, error.record_index) == ("body", 1, 2, 3)


def test_an_offset_outside_the_log_names_the_nearer_end() -> None:
    low = error_of(OffsetOutOfRangeError(5, 10, 20))
    high = error_of(OffsetOutOfRangeError(25, 10, 20))
    assert (low.actual, low.limit) == (5, 10)
    assert (high.actual, high.limit) == (25, 20)


def test_every_code_of_a_refused_batch_is_one_of_the_protocol() -> None:
    for code in common_pb2.ErrorCode.keys():  # noqa: SIM118 - no dict
        assert error_of(BatchRefusedError(code, "f", "m")).code == common_pb2.ErrorCode.Value(code)


def test_a_message_that_quotes_megabytes_is_shortened() -> None:
    problem = RequestRefusedError(common_pb2.UNKNOWN_TOPIC, "x" * 1_000_000, field="topic")
    answer = error_of(problem)
    assert len(answer.message) < 2_100
    assert answer.message.endswith("(1000000 characters)")

"""What clients ask of offsets: requests 14, 15, 29, 30, 31 and 32, read from their headers."""

from dataclasses import dataclass

from .read_fields import I32, Fields, flag, integer, text

UPPER = "UPPER"


@dataclass(frozen=True, slots=True)
class QueueRequest:
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class OffsetRequest:
    """`zero`: the first offset may be named for a group that has none."""

    group: str
    queue: QueueRequest
    zero: bool


@dataclass(frozen=True, slots=True)
class CommitRequest:
    group: str
    queue: QueueRequest
    queue_offset: int


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """`timestamp`: store time in ms. `upper`: the last message that is not newer, in place of the
    first that is not older."""

    queue: QueueRequest
    timestamp: int
    upper: bool


def read_queue(fields: Fields) -> QueueRequest:
    """Of every request here. Raises FormatError, as all of them."""
    return QueueRequest(text(fields, "topic"), integer(fields, "queueId", None, I32))


def read_offset_query(fields: Fields) -> OffsetRequest:
    zero = flag(fields, "setZeroIfNotFound", default=True)
    return OffsetRequest(text(fields, "consumerGroup"), read_queue(fields), zero)


def read_commit(fields: Fields) -> CommitRequest:
    offset = integer(fields, "commitOffset")
    return CommitRequest(text(fields, "consumerGroup"), read_queue(fields), offset)


def read_search(fields: Fields) -> SearchRequest:
    upper = fields.get("boundaryType", "").upper() == UPPER
    return SearchRequest(read_queue(fields), integer(fields, "timestamp"), upper)

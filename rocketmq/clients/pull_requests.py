"""What a consumer asks by requests 11 and 361, and what it is answered.

    sysFlag   1  commitOffset is to be committed
              2  park: wait up to suspendTimeoutMillis for a message
              4  the subscription is in this header, else it is that of the group's heartbeat
              8  a class of Java filters (in FilterServer, which is gone): everything is served
             16  a lite consumer; nothing follows from it

    subscription   `*` or nothing: all;  `a || b`: the hashes of these tags, and the client compares
                   the texts;  SQL92: a condition, and the client compares nothing

The codes are those of RocketMQ's PullMessageProcessor. A client continues at nextBeginOffset after
each of them; OFFSET_MOVED also makes it commit there. That is for the master to say: a slave may
only be behind, or keep its log for another time, so it sends the client there instead.
"""

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from tandemlog.format.errors import FormatError
from tandemlog.format.java_hash import java_hash
from tandemlog.format.words import quoted
from tandemlog_server.storage.reads.results import GetStatus

from .codes import ResponseCode
from .read_fields import I32, Fields, integer, text

COMMIT: Final = 1
PARK: Final = 2
SUBSCRIPTION: Final = 4
CLASS_FILTER: Final = 8

TAG: Final = "TAG"
SQL92: Final = "SQL92"
ALL: Final = "*"
MAX_TAGS: Final = 1_024
DEFAULT_BYTES: Final = 256 << 10
"""RocketMQ's maxTransferBytesOnMessageInMemory, where a client names no size."""
MASTER_ID: Final = 0

_MOVED: Final = frozenset({GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY})
_NO_MESSAGES: Final = frozenset({GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE})
_PASSED: Final = frozenset({GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})


class SubscriptionError(FormatError):
    """A subscription that cannot be understood."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Which messages of a queue are wanted: no hashes, all tags; no `condition` (a text for
    tandemlog.format.filter), all of them."""

    tag_hashes: frozenset[int] = frozenset()
    condition: str = ""


EVERYTHING: Final = Narrowing()


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Offsets of queues, bytes, milliseconds. `wait_ms` 0: no wait. `commit_offset` None: nothing
    to commit. `subscription` None: that of the group."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    max_bytes: int
    wait_ms: int
    commit_offset: int | None
    subscription: str | None
    expression_type: str
    version: int
    class_filter: bool


def read_pull(fields: Fields) -> PullRequest:
    """The header of requests 11 and 361. Raises FormatError."""
    sys_flag = integer(fields, "sysFlag", 0, I32)
    commit_offset = integer(fields, "commitOffset", 0) if sys_flag & COMMIT else None
    max_bytes = integer(fields, "maxMsgBytes", DEFAULT_BYTES)
    return PullRequest(
        group=text(fields, "consumerGroup"),
        topic=text(fields, "topic"),
        queue_id=integer(fields, "queueId", None, I32),
        queue_offset=integer(fields, "queueOffset"),
        max_messages=max(1, integer(fields, "maxMsgNums", None, I32)),
        max_bytes=max_bytes if max_bytes > 0 else DEFAULT_BYTES,
        wait_ms=max(0, integer(fields, "suspendTimeoutMillis", 0)) if sys_flag & PARK else 0,
        commit_offset=commit_offset,
        subscription=fields.get("subscription", "") if sys_flag & SUBSCRIPTION else None,
        expression_type=fields.get("expressionType") or TAG,
        version=integer(fields, "subVersion", 0),
        class_filter=bool(sys_flag & CLASS_FILTER),
    )


def narrowing(expression: str, expression_type: str) -> Narrowing:
    """Raises SubscriptionError; whether a condition can be parsed shows when it is read."""
    if expression_type == SQL92:
        if not expression.strip():
            raise SubscriptionError("the subscription is SQL92, and has no condition")
        return Narrowing(condition=expression)
    if expression_type != TAG:
        raise SubscriptionError(
            f"expressionType is {quoted(expression_type)}: this node knows TAG and SQL92"
        )
    if expression in ("", ALL):
        return EVERYTHING
    tags = {piece.strip() for piece in expression.split("||")} - {""}
    if not tags:
        raise SubscriptionError(
            f"subscription {quoted(expression)} has no tag: write `a || b`, or * for all"
        )
    if len(tags) > MAX_TAGS:
        raise SubscriptionError(
            f"the subscription has {len(tags)} tags, the most is {MAX_TAGS}: use SQL92, or a topic "
            "of its own"
        )
    return Narrowing(frozenset(map(java_hash, tags)))


def has_moved(status: GetStatus, queue_offset: int) -> bool:
    """Whether the queue has no place for this offset: its reader is to continue elsewhere."""
    return status in _MOVED or (status in _NO_MESSAGES and queue_offset != 0)


def pull_code(status: GetStatus, queue_offset: int, next_offset: int, *, on_slave: bool) -> int:
    """The ResponseCode for a get that began at `queue_offset`. `next_offset` further on, with no
    message: a filter has passed them."""
    if status is GetStatus.FOUND:
        return ResponseCode.SUCCESS
    if has_moved(status, queue_offset):
        return ResponseCode.PULL_RETRY_IMMEDIATELY if on_slave else ResponseCode.PULL_OFFSET_MOVED
    if status in _PASSED or (
        status is GetStatus.OFFSET_OVERFLOW_ONE and next_offset != queue_offset
    ):
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    return ResponseCode.PULL_NOT_FOUND


def pull_answer(
    next_offset: int, min_offset: int, max_offset: int, broker_id: int
) -> dict[str, str]:
    """The fields of every answer to a pull: a client reads all four."""
    return {
        "suggestWhichBrokerId": str(broker_id),
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
    }


def reader_of(topic: str, queue_id: int, readers: tuple[int, ...]) -> int:
    """Which of these nodes, at least one, is to serve a queue: the same on every node, and spread
    over all of them."""
    return readers[(crc32(topic.encode()) + queue_id) % len(readers)]

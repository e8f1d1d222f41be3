"""What a client is told when its request is refused: a code of the 5.x API, and a sentence.

ErrorCode (error_status.py) ─▶ Code, by what a client does with it

    HA_NOT_AVAILABLE, INTERNAL_ERROR ..   a send is tried again at once, three times in all
    TOO_MANY_REQUESTS                     a send fails at once
    INVALID_RECEIPT_HANDLE                an acknowledgement is given up
    MESSAGE_NOT_FOUND                     a receive was in vain, and is no error
"""

from typing import Final

from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog.v1 import broker_pb2, common_pb2

_CODES: Final[dict[int, int]] = {
    common_pb2.NOT_MASTER: v2.HA_NOT_AVAILABLE,
    common_pb2.NOT_IN_SYNC: v2.HA_NOT_AVAILABLE,
    common_pb2.CHANGE_REFUSED: v2.HA_NOT_AVAILABLE,
    common_pb2.COORDINATOR_UNAVAILABLE: v2.HA_NOT_AVAILABLE,
    common_pb2.SHUTTING_DOWN: v2.HA_NOT_AVAILABLE,
    common_pb2.STORE_READ_ONLY: v2.HA_NOT_AVAILABLE,
    common_pb2.DISK_FULL: v2.HA_NOT_AVAILABLE,
    common_pb2.BUSY: v2.TOO_MANY_REQUESTS,
    common_pb2.UNAUTHENTICATED: v2.UNAUTHORIZED,
    common_pb2.PERMISSION_DENIED: v2.FORBIDDEN,
    common_pb2.UNKNOWN_TOPIC: v2.TOPIC_NOT_FOUND,
    common_pb2.INVALID_TOPIC_NAME: v2.ILLEGAL_TOPIC,
    common_pb2.UNKNOWN_QUEUE: v2.TOPIC_NOT_FOUND,
    common_pb2.UNKNOWN_GROUP: v2.CONSUMER_GROUP_NOT_FOUND,
    common_pb2.GROUP_HAS_MEMBERS: v2.PRECONDITION_FAILED,
    common_pb2.NOT_WAITING: v2.NOT_FOUND,
    common_pb2.INVALID_ARGUMENT: v2.BAD_REQUEST,
    common_pb2.MESSAGE_TOO_LARGE: v2.MESSAGE_BODY_TOO_LARGE,
    common_pb2.BATCH_TOO_LARGE: v2.PAYLOAD_TOO_LARGE,
    common_pb2.PROPERTIES_TOO_LARGE: v2.MESSAGE_PROPERTIES_TOO_LARGE,
    common_pb2.BAD_RECORD: v2.BAD_REQUEST,
}
_PUTS: Final[dict[int, int]] = {
    broker_pb2.PUT_OK: v2.OK,
    broker_pb2.FLUSH_DISK_TIMEOUT: v2.MASTER_PERSISTENCE_TIMEOUT,
    broker_pb2.FLUSH_SLAVE_TIMEOUT: v2.SLAVE_PERSISTENCE_TIMEOUT,
    broker_pb2.SLAVE_NOT_AVAILABLE: v2.HA_NOT_AVAILABLE,
}
UNCONFIRMED: Final = "the message is stored, but it is not known to be confirmed"


class MessagingRefusedError(Exception):
    """A request that is refused with a Code of the 5.x API."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def code_of(code: int) -> int:
    """The Code of a tandemlog.v1.ErrorCode; INTERNAL_SERVER_ERROR for one that is not listed."""
    return _CODES.get(code, v2.INTERNAL_SERVER_ERROR)


def put_status(status: int) -> v2.Status:
    """Of a send that was stored, by its PutStatus."""
    code = _PUTS.get(status, v2.INTERNAL_SERVER_ERROR)
    return made_status(code, "OK" if code == v2.OK else UNCONFIRMED)


def made_status(code: int, message: str = "OK") -> v2.Status:
    return v2.Status(code=v2.Code.ValueType(code), message=message)

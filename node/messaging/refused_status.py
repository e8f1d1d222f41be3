"""What a client is told of an exception of a method: a refusal of this door, or of what it shares
with the door of classic clients, which is the creation of topics."""

from typing import Final

from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.clients.codes import ResponseCode
from tandemlog_server.rocketmq.messaging.refusals import (
    MessagingRefusedError,
    code_of,
    made_status,
)

from ..error_status import error_of
from ..remoting.door.remoting_call import RemotingRefusedError

_CODES: Final = {
    ResponseCode.TOPIC_NOT_EXIST: v2.TOPIC_NOT_FOUND,
    ResponseCode.MESSAGE_ILLEGAL: v2.ILLEGAL_TOPIC,
    ResponseCode.NO_PERMISSION: v2.FORBIDDEN,
    ResponseCode.SYSTEM_BUSY: v2.TOO_MANY_REQUESTS,
}


def own_status(problem: Exception) -> v2.Status | None:
    """None for an exception that any door of the node may see."""
    if isinstance(problem, MessagingRefusedError):
        return made_status(problem.code, str(problem))
    if isinstance(problem, RemotingRefusedError):
        return made_status(_CODES.get(problem.code, v2.INTERNAL_SERVER_ERROR), str(problem))
    return None


def status_of(problem: Exception) -> v2.Status:
    """Of one message among several; an unexpected exception is logged."""
    status = own_status(problem)
    if status is None:
        error = error_of(problem)
        status = made_status(code_of(error.code), error.message)
    return status

"""One table from the errors of a node to the response codes of RocketMQ.

    exception ─▶ ErrorCode (error_status.py) ─▶ ResponseCode, by what a client does with it:

        1, 2, 14, 16, 17     a producer tries another broker name at once, twice
        any other            the caller gets the error
        of a pull: any       the client asks again after a second or three

So what another node, or a moment, may mend has a code of the first row; what is wrong with the
request itself has none, since it would fail three times. The remark is the sentence that every
other client of the node gets; what it quotes came from the client, and may be as long as a frame.
"""

from typing import Final

from tandemlog.format.words import shortened
from tandemlog.v1 import common_pb2
from tandemlog_server.rocketmq.clients.codes import ResponseCode
from tandemlog_server.rocketmq.clients.handed_on import OUTCOME_UNKNOWN
from tandemlog_server.rocketmq.wire.remoting import Command

from .remoting_call import RemotingRefusedError

GROUP_NOT_EXIST: Final = 26
"""RocketMQ's SUBSCRIPTION_GROUP_NOT_EXIST."""

_CODES: Final[dict[int, int]] = {
    # another node may be the master, or this one in a moment
    common_pb2.NOT_MASTER: ResponseCode.SERVICE_NOT_AVAILABLE,
    common_pb2.NOT_IN_SYNC: ResponseCode.SERVICE_NOT_AVAILABLE,
    common_pb2.CHANGE_REFUSED: ResponseCode.SERVICE_NOT_AVAILABLE,
    common_pb2.COORDINATOR_UNAVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    common_pb2.SHUTTING_DOWN: ResponseCode.SERVICE_NOT_AVAILABLE,
    common_pb2.STORE_READ_ONLY: ResponseCode.SERVICE_NOT_AVAILABLE,
    common_pb2.DISK_FULL: ResponseCode.SERVICE_NOT_AVAILABLE,
    common_pb2.BUSY: ResponseCode.SYSTEM_BUSY,
    common_pb2.UNAUTHENTICATED: ResponseCode.NO_PERMISSION,
    common_pb2.PERMISSION_DENIED: ResponseCode.NO_PERMISSION,
    common_pb2.UNKNOWN_TOPIC: ResponseCode.TOPIC_NOT_EXIST,
    common_pb2.UNKNOWN_GROUP: GROUP_NOT_EXIST,
    # it may be stored: the program decides whether it is sent again
    common_pb2.OUTCOME_UNKNOWN: OUTCOME_UNKNOWN,
    # the request is wrong: it would be wrong three times
    common_pb2.INVALID_ARGUMENT: ResponseCode.MESSAGE_ILLEGAL,
    common_pb2.INVALID_TOPIC_NAME: ResponseCode.MESSAGE_ILLEGAL,
    common_pb2.MESSAGE_TOO_LARGE: ResponseCode.MESSAGE_ILLEGAL,
    common_pb2.BATCH_TOO_LARGE: ResponseCode.MESSAGE_ILLEGAL,
    common_pb2.PROPERTIES_TOO_LARGE: ResponseCode.MESSAGE_ILLEGAL,
    common_pb2.BAD_RECORD: ResponseCode.MESSAGE_ILLEGAL,
    common_pb2.UNKNOWN_QUEUE: ResponseCode.INVALID_PARAMETER,
}


def response_code_of(code: int) -> int:
    """The ResponseCode of a tandemlog.v1.ErrorCode; SYSTEM_ERROR for one that is not listed."""
    return _CODES.get(code, ResponseCode.SYSTEM_ERROR)


def refused(request: Command, error: common_pb2.Error) -> Command:
    """The response to a request that ended with `error`."""
    if error.code == common_pb2.INTERNAL and not error.message:
        error.message = "an unexpected error, which this node has logged"
    return request.response(code=response_code_of(error.code), remark=shortened(error.message))


def refused_by_code(request: Command, problem: RemotingRefusedError) -> Command:
    """The response to one that a method refused in RocketMQ's own words."""
    problem.__traceback__ = None
    return request.response(code=problem.code, remark=shortened(str(problem)))

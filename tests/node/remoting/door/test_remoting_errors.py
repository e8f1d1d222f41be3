"""Refusals in RocketMQ's codes."""

from tandemlog.v1 import common_pb2
from tandemlog_server.node.remoting.door.remoting_call import RemotingRefusedError
from tandemlog_server.node.remoting.door.remoting_errors import refused, refused_by_code
from tandemlog_server.rocketmq.wire.remoting import Command


def test_a_sentence_does_not_repeat_all_that_a_client_has_sent() -> None:
    request, text = Command(36, 7), "no message " + "x" * 60_000
    error = common_pb2.Error(code=common_pb2.INVALID_ARGUMENT, message=text)
    for answer in (
        refused(request, error),
        refused_by_code(request, RemotingRefusedError(1, text)),
    ):
        assert answer.remark.startswith("no message xxx")
        assert answer.remark.endswith("(60011 characters)")
        assert len(answer.remark) < 2_100

"""Request and reply: a reply (324, 325) on its way to the client that waits for it (326).

    requester ── send, REPLY_TO_CLIENT=me CORRELATION_ID=c ──▶ topic ──▶ consumer
    requester ◀── 326 ── node ◀── 324, 325: the same two properties ──── consumer

A 324 has the header of a send with long names (10), a 325 that with short ones (310). A 326 says
what the reply's header said, and where it came from. The requester pairs it by CORRELATION_ID.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tandemlog_server.rocketmq.wire.remoting import Command

from .codes import RequestCode
from .send_requests import SendRequest

REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
_SENDS: Final = {
    RequestCode.SEND_REPLY_MESSAGE: RequestCode.SEND_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2: RequestCode.SEND_MESSAGE_V2,
}
_END: Final = "\x02"


def as_send(reply: Command) -> Command:
    """The send with the same header and body."""
    return replace(reply, code=_SENDS[reply.code])


def push_fields(
    reply: SendRequest, *, born_host: str, store_host: str, now_ms: int, facts: Mapping[str, str]
) -> dict[str, str]:
    """The fields of a 326; hosts as HOST:PORT. All of them must be there. `facts` are properties
    of the broker, as it adds them to each message."""
    properties = reply.properties
    joint = "" if not properties or properties.endswith(_END) else _END
    added = {**facts, PUSH_REPLY_TIME: str(now_ms)}
    rows = "".join(f"{name}\x01{value}{_END}" for name, value in added.items())
    return {
        "producerGroup": reply.group,
        "topic": reply.topic,
        "defaultTopic": reply.default_topic,
        "defaultTopicQueueNums": str(reply.default_queues),
        "queueId": str(reply.queue_id),
        "sysFlag": str(reply.sys_flag),
        "bornTimestamp": str(reply.born_timestamp),
        "flag": str(reply.flag),
        "properties": f"{properties}{joint}{rows}",
        "reconsumeTimes": str(reply.reconsume_times),
        "unitMode": "false",
        "bornHost": born_host,
        "storeHost": store_host,
        "storeTimestamp": str(now_ms),
    }

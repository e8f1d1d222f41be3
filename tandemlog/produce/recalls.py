"""Calling back a message that has not come yet.

A recall may be repeated: a master that has called the message back before gives the same answer
again, as long as it remembers (the last few thousand recalls).
"""

from ..cluster.connection import Connection
from ..errors import InvalidArgumentError, OutcomeUnknownError
from ..format.delay.handle import decode_handle
from ..format.errors import FormatError
from ..v1 import broker_pb2


async def recall(connection: Connection, topic: str, recall_handle: str) -> None:
    """See Producer.recall."""
    if not recall_handle:
        raise InvalidArgumentError(
            "an empty recall handle: only messages with delay or deliver_at have one",
            field="recall_handle",
        )
    try:
        handle = decode_handle(recall_handle)
    except FormatError as error:
        raise InvalidArgumentError(str(error), field="recall_handle") from error
    if handle.topic != topic:
        raise InvalidArgumentError(
            f"the recall handle is of a message to {handle.topic!r}, not to {topic!r}",
            field="topic",
        )
    request = broker_pb2.RecallRequest(topic=topic, recall_handle=recall_handle)
    timeout_ms = connection.options.request_timeout_ms

    async def once() -> None:
        await connection.on_master(lambda node: node.ask(node.broker.Recall, request, timeout_ms))

    try:
        await once()
    except OutcomeUnknownError:
        # the same question again tells: the message was called back, or it still waits
        await once()

"""The messages of a cluster that wait for their time, as its master lists them."""

from dataclasses import dataclass

from ..v1 import admin_pb2
from .connection import Connection


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that comes to queue `queue_id` of `topic` at `deliver_at_ms`; it waits since
    `store_timestamp` (ms) in the record at `physical_offset`. `body_bytes` is the stored size of
    its body, `unique_key` its id, `recall_handle` what Producer.recall takes."""

    topic: str
    queue_id: int
    deliver_at_ms: int
    store_timestamp: int
    physical_offset: int
    body_bytes: int
    unique_key: str
    recall_handle: str


async def delayed_messages(
    connection: Connection, topic: str, limit: int, timeout_ms: int
) -> list[DelayedMessage]:
    """The first `limit` by time; an empty `topic`: of all that the caller may see."""

    async def ask(page: str) -> admin_pb2.ListDelayedResponse:
        request = admin_pb2.ListDelayedRequest(topic=topic, page=page)
        return await connection.on_master(
            lambda node: node.ask(node.admin.ListDelayed, request, timeout_ms)
        )

    found: list[DelayedMessage] = []
    page = ""
    while len(found) < limit:
        answer = await ask(page)
        found += [_message(each) for each in answer.messages]
        page = answer.next_page
        if not page:
            break
    return found[:limit]


def _message(row: admin_pb2.DelayedMessage) -> DelayedMessage:
    return DelayedMessage(
        row.topic,
        row.queue_id,
        row.deliver_at_ms,
        row.store_timestamp,
        row.physical_offset,
        row.body_bytes,
        row.unique_key,
        row.recall_handle,
    )

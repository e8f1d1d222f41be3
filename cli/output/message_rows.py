"""Messages as rows, with the fields of `dump`."""

import base64
from typing import Any

from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog_server.storage.tools.dump import message_row

MESSAGE_COLUMNS = (
    "topic",
    "queue_id",
    "queue_offset",
    "tags",
    "keys",
    "store_timestamp",
    "msg_id",
    "size",
    "text",
)


def received_row(message: ReceivedMessage) -> dict[str, Any]:
    """A message as `dump` has it, but the body decompressed; for tables also the body as text."""
    body = message.body
    row: dict[str, Any] = message_row(message.record)
    row["body"] = base64.b64encode(body).decode()
    return row


def table_row(message: ReceivedMessage) -> dict[str, Any]:
    """The same for people: the body as text, with a mark for what is none."""
    row = received_row(message)
    row["text"] = message.body.decode(errors="replace")
    return row

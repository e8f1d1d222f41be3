"""The name server's key-value configuration, as far as it says which topics keep an order.

    namespace ORDER_TOPIC_CONFIG, key orders, value "broker-a:4"      mqadmin updateTopic -o true

A producer then sends to these queues, and to no others, also while one of them cannot be written.
What a broker's name server keeps as a text follows here from the topic itself: its `order` flag,
the names of the broker in a route, and its queues. So setting the key sets the flag, and the text
that is set need only be one for this broker. Other namespaces are not kept.
"""

from collections.abc import Mapping
from typing import Final

from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted

from .read_fields import Fields, text
from .routes import encoded

ORDER: Final = "ORDER_TOPIC_CONFIG"


def read_key(fields: Fields) -> str:
    """The topic that a request is about. Raises FormatError for another namespace."""
    require_order(fields)
    return text(fields, "key")


def require_order(fields: Fields) -> None:
    """Raises FormatError."""
    namespace = fields.get("namespace", "")
    if namespace != ORDER:
        raise FormatError(
            f"namespace {quoted(namespace)} is not kept here: a node has {ORDER}, which follows "
            "from the order of topics"
        )


def read_value(fields: Fields, broker: str) -> None:
    """Raises FormatError for a value that does not name this broker with a number of queues."""
    value = text(fields, "value")
    for part in value.split(";"):
        name, _, count = part.partition(":")
        if name == broker and count.isdecimal() and count.isascii():
            return
    raise FormatError(
        f"value {quoted(value)} names no queues of this broker: write {broker}:4, or use mqadmin "
        "updateTopic -o true"
    )


def table(rows: Mapping[str, str]) -> bytes:
    """RocketMQ's KVTable."""
    return encoded({"table": dict(sorted(rows.items()))})

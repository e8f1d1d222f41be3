"""Message objects into columns: what a list of them is turned into before it is framed.

    [Message, Message, ...] ── parts of about a request ──▶ attributes as lists ──▶ Columns

One call takes the attributes of a message, and the rest is done for all of a part. Messages that
have more than topic, body, queue, keys and tags are left to be framed one by one. Without numpy all
are, and columns become Message objects (messages_of).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidArgumentError, InvalidMessageError
from ..format.record.message_id import MAX_IDS_AT_ONCE
from ..lazy import lazy, missing_numpy
from ..message import Message
from .arrow_shapes import is_arrow
from .framing import spaced_key

if TYPE_CHECKING:
    from . import column_framing
else:
    column_framing = lazy(f"{__package__}.column_framing")

_MOST: Final = 1 << 14
"""Messages of a part."""
_OVERHEAD: Final = 200
"""Bytes of a record beside its body, about."""
_FIRST_LOOK: Final = 16

assert _MOST <= MAX_IDS_AT_ONCE


def message_parts(messages: Iterable[Message], max_bytes: int) -> Iterator[list[Message]]:
    """The messages in parts of about `max_bytes`. No more are asked for at once than are expected
    to fit, so that an iterator of large messages does not fill the memory. Raises
    InvalidMessageError for a body that has no length."""
    iterator = iter(messages)
    part: list[Message] = []
    size, step = 0, _FIRST_LOOK
    while more := list(islice(iterator, step)):
        part += more
        try:
            size += sum([len(message.body) for message in more]) + _OVERHEAD * len(more)
        except TypeError as error:
            raise InvalidMessageError(f"a body is bytes: {error}", field="body") from error
        mean = size // len(part)
        if size + mean > max_bytes or len(part) >= _MOST:
            yield part
            part, size = [], 0
        step = max(min((max_bytes - size) // mean, _MOST - len(part)), 1)
    if part:
        yield part


def columns_of(part: list[Message]) -> "column_framing.Columns | None":
    """The messages as columns, or None if one of them has anything unusual."""
    # A comprehension for each attribute: a tuple for each message would cost twice as much.
    unusual = [message.properties or message.sharding_key or message.flag for message in part]
    born = [message.born_timestamp for message in part]
    queues = [message.queue_id for message in part]
    unset = queues.count(None)
    if any(unusual) or born.count(None) != len(part) or unset not in (0, len(part)):
        return None
    bodies = [message.body for message in part]
    keys = [message.keys for message in part]
    tags = [message.tags for message in part]
    if set(map(type, bodies)) != {bytes} or not set(map(type, (*keys, *tags))) <= {str}:
        return None
    return column_framing.Columns.of(
        bodies,
        _checked(keys) if any(keys) else None,
        tags if any(tags) else None,
        None if unset else queues,
        None,
        [message.topic for message in part],
    )


def _checked(keys: list[Any]) -> list[Any]:
    """Raises InvalidMessageError for a key with a space in it."""
    if " " in "".join(keys):
        index, key = next((index, key) for index, key in enumerate(keys) if " " in key)
        raise spaced_key(key, index)
    return keys


def messages_of(
    bodies: Sequence[Any],
    topics: Any,
    keys: Any,
    tags: Any,
    queues: Any,
    sharding_keys: Any,
    properties: Mapping[str, str],
) -> Iterator[Message]:
    """Columns without numpy: sequences of one length, or one value for all. Raises
    InvalidArgumentError naming the one that does not fit."""
    count = len(bodies)
    named = {"topics": topics, "keys": keys, "tags": tags, "queue": queues}
    named["sharding_keys"] = sharding_keys
    columns = [_repeated(values, name, count) for name, values in named.items()]
    for body, topic, key, tag, queue, sharding_key in zip(bodies, *columns, strict=True):
        if body is None:
            raise InvalidArgumentError("body: a message without a body (null)", field="body")
        text = _text(key)
        yield Message(
            _text(topic),
            body.encode() if isinstance(body, str) else body,
            text.split(" ") if " " in text else text,
            _text(tag),
            properties or None,
            queue,
            None if sharding_keys is None else _text(sharding_key),
        )


def _repeated(values: Any, name: str, count: int) -> Iterable[Any]:
    if values is None or isinstance(values, str | bytes | int):
        return repeat(values, count)
    if is_arrow(values) or not isinstance(values, Sequence):
        raise missing_numpy()
    if len(values) != count:
        raise InvalidArgumentError(
            f"column {name} has {len(values)} rows, body has {count}",
            field=name,
            limit=count,
            actual=len(values),
        )
    return values


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""

"""A message that a consumer sends back (36), and a message that its producer calls back (370)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tandemlog.format.errors import FormatError
from tandemlog.format.lease.dead_letter import RETRY_TOPIC
from tandemlog.format.record.record import Record
from tandemlog.format.words import shortened
from tandemlog_server.rocketmq.wire.remoting import Command

_MOST_DIGITS: Final = 19
_MAX_I64: Final = (1 << 63) - 1


class SendBackRequest(NamedTuple):
    """The group could not handle the message at `log_offset`, which had this topic and id.
    `delay_level` as storage.services.send_back; `max_retries` None: what the group says."""

    group: str
    log_offset: int
    delay_level: int
    origin_id: str
    origin_topic: str
    max_retries: int | None


class RecallRequest(NamedTuple):
    """The message to `topic` whose send was answered with `handle` is not to come."""

    topic: str
    handle: str


def read_send_back(request: Command) -> SendBackRequest:
    """Raises FormatError, which names the field."""
    fields = request.fields
    group = fields.get("group")
    if not group:
        raise FormatError("request 36: field 'group' is missing")
    most = fields.get("maxReconsumeTimes")
    return SendBackRequest(
        group,
        _number(fields, "offset"),
        _number(fields, "delayLevel", 0),
        fields.get("originMsgId", ""),
        fields.get("originTopic", ""),
        None if most is None else _number(fields, "maxReconsumeTimes"),
    )


def read_recall(request: Command) -> RecallRequest:
    """Raises FormatError, which names the field."""
    topic, handle = request.fields.get("topic"), request.fields.get("recallHandle")
    if not topic or not handle:
        raise FormatError("request 370: fields 'topic' and 'recallHandle' are needed")
    return RecallRequest(topic, handle)


def mismatch(request: SendBackRequest, record: Record) -> str | None:
    """Why `record` cannot be the message that the request is about; None if it is. A client names a
    message by its UNIQ_KEY, or by where it is stored, and by the topic that it was first sent
    to."""
    own = record.topic, record.properties.get(RETRY_TOPIC)
    if request.origin_topic and request.origin_topic not in own:
        return f"its topic is {record.topic!r}, not {request.origin_topic!r}"
    if request.origin_id and request.origin_id not in (record.uniq_key, record.msg_id):
        return f"its id is {record.uniq_key or record.msg_id}, not {request.origin_id}"
    return None


def _number(fields: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = fields.get(name)
    if text is None:
        if default is None:
            raise FormatError(f"request 36: field {name!r} is missing")
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise FormatError(
            f"request 36: field {name!r} says {shortened(repr(text), 60)}, which is no number"
        )
    number = int(text)
    if abs(number) > _MAX_I64:
        raise FormatError(f"request 36: field {name!r} says {number}, which has more than 63 bits")
    return number

"""What the wire says of transactions: END_TRANSACTION (37) and CHECK_TRANSACTION_STATE (39).

    client ── 37 commit ▸ rollback ▸ unknown ──▶ node     names the half by its place:
                                                            commitLogOffset       in the log
                                                            tranStateTableOffset  in the half topic
                                                            producerGroup, msgId  must fit it
    client ◀── 39 which outcome? ── node                  the half, with its real topic
    client ── 37 fromTransactionCheck=true ──▶ node

Both are oneway. A client takes the place from the answer to its send: the first number out of the
offset message id.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tandemlog.format.constants import REAL_TOPIC, UNIQ_KEY
from tandemlog.format.errors import FormatError
from tandemlog.format.record.message_id import decode_offset_id
from tandemlog.format.record.record import Record, encode_record
from tandemlog.format.record.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
)
from tandemlog.format.transaction.half import half_of
from tandemlog.format.words import quoted

_OUTCOMES: Final = {
    TRANSACTION_COMMIT: True,
    TRANSACTION_ROLLBACK: False,
    TRANSACTION_NONE: None,
}
_MOST_DIGITS: Final = 19
_MOST_TEXT: Final = 255


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A decision. `commits` None: the producer does not know yet. `names` are what the client calls
    the message: its UNIQ_KEY is one of them, where it names any."""

    group: str
    log_offset: int
    queue_offset: int
    commits: bool | None
    names: tuple[str, ...] = ()
    from_check: bool = False


def read_end_transaction(fields: Mapping[str, str]) -> EndTransaction:
    """Of a 37. Raises FormatError that names the field."""
    outcome = _number(fields, "commitOrRollback")
    if outcome not in _OUTCOMES:
        raise FormatError(
            f"commitOrRollback is {outcome}, not {TRANSACTION_COMMIT} (commit), "
            f"{TRANSACTION_ROLLBACK} (rollback) or {TRANSACTION_NONE} (unknown)"
        )
    texts = (_text(fields, "msgId"), _text(fields, "transactionId"))
    return EndTransaction(
        group=_text(fields, "producerGroup"),
        log_offset=_number(fields, "commitLogOffset"),
        queue_offset=_number(fields, "tranStateTableOffset"),
        commits=_OUTCOMES[outcome],
        names=tuple(dict.fromkeys(each for each in texts if each)),
        from_check=fields.get("fromTransactionCheck", "").lower() == "true",
    )


def mismatch(wanted: EndTransaction, *, group: str, key: str, queue_offset: int) -> str | None:
    """Why a half is not the one that a decision names; None if it is."""
    if group != wanted.group:
        return f"it is of producer group {quoted(group)}, not {quoted(wanted.group)}"
    if queue_offset != wanted.queue_offset:
        return f"it is at queue offset {queue_offset}, not {wanted.queue_offset}"
    if wanted.names and key not in wanted.names and not _names_place(wanted):
        return f"its {UNIQ_KEY} is {quoted(key)}, not {quoted(wanted.names[0])}"
    return None


def _names_place(wanted: EndTransaction) -> bool:
    """Whether the client calls the message by its offset id."""
    for name in wanted.names:
        with suppress(FormatError):
            if decode_offset_id(name)[1] == wanted.log_offset:
                return True
    return False


def check_fields(half: Record) -> dict[str, str]:
    """The fields of a 39 about a half record, at its place in the log."""
    key = half.uniq_key or ""
    return {
        "topic": half.properties.get(REAL_TOPIC, ""),
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.physical_offset),
        "msgId": key,
        "transactionId": key,
        "offsetMsgId": half.msg_id,
    }


def check_body(half: Record) -> bytes:
    """The record of a 39: the half as it is, in the queue that its message is for. Raises
    FormatError for a half that does not say where it goes."""
    target = half_of(half)
    if target is None:
        raise FormatError(f"the half at {half.physical_offset} does not say where it goes")
    return encode_record(
        topic=target.topic,
        queue_id=target.queue_id,
        body=half.body,
        properties=half.properties_raw,
        flag=half.flag,
        sys_flag=half.sys_flag,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        queue_offset=half.queue_offset,
        physical_offset=half.physical_offset,
        store_timestamp=half.store_timestamp,
        store_host=half.store_host,
        reconsume_times=half.reconsume_times,
        prepared_transaction_offset=half.prepared_transaction_offset,
    )


def _number(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise FormatError(f"{name} is {quoted(text)}, not a number from 0 on")
    return int(text)


def _text(fields: Mapping[str, str], name: str) -> str:
    text = fields.get(name, "")
    if len(text) > _MOST_TEXT:
        raise FormatError(f"{name} has {len(text)} characters, the most is {_MOST_TEXT}")
    return text

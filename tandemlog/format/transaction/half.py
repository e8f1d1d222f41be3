"""Half messages, committed messages and OP records, as RocketMQ 5.5 writes them.

    half       RMQ_SYS_TRANS_HALF_TOPIC/0      the message, which is not read yet
                 TRAN_MSG=true PGROUP=billing REAL_TOPIC=orders REAL_QID=3
                 UNIQ_KEY=AC11.. __transactionId__=AC11..
                 __TL_TX=5f0c..                tandemlog's own: whose half it is
    committed  orders/3                        the same without REAL_TOPIC and REAL_QID;
                 bits COMMIT, and in the header the log offset of the half
    OP         RMQ_SYS_TRANS_OP_HALF_TOPIC/0   TAGS=d, body "40,41,": the halves at these queue
                                               offsets have ended

A transaction of RocketMQ has one message and is known by its UNIQ_KEY. One of tandemlog may have
several: they share `__TL_TX`, which a broker ignores.

An OP record alone says that its halves are rolled back. After a commit it says to a broker, which
knows no other sign, that there is nothing left to decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..constants import (
    CRC32,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    PRODUCER_GROUP,
    PRODUCER_MARK,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from ..delay.framing import name_of
from ..errors import FormatError
from ..record.properties import edited_properties
from ..record.record import Record, encode_record
from ..record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK

PLACE_OF_HALVES: Final = (HALF_TOPIC, 0)
"""Topic and queue in which halves wait for the decision."""
OP_TAG: Final = "d"
MOST_ID_CHARACTERS: Final = 128
MOST_GROUP_CHARACTERS: Final = 255
MOST_MESSAGES: Final = 10_000
"""Of one transaction."""
_SEPARATOR: Final = ","
_MOST_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class Half:
    """What a half record says: where its message goes, whose it is, how often a broker has asked
    for a decision. `transaction_id` is its key for a half of RocketMQ's."""

    topic: str
    queue_id: int
    transaction_id: str
    key: str
    group: str
    check_times: int = 0


def half_properties(
    topic: str, queue_id: int, *, group: str, key: str, transaction_id: str
) -> dict[str, str]:
    """The properties more of a message to this queue, as a half; `key` is its UNIQ_KEY."""
    return {
        TRANSACTION_PREPARED: "true",
        PRODUCER_GROUP: group,
        REAL_TOPIC: topic,
        REAL_QUEUE_ID: str(queue_id),
        TRANSACTION_ID: key,
        TRANSACTION: transaction_id,
    }


def half_of(record: Record) -> Half | None:
    """What a record of the half topic says; None if it does not say where its message goes."""
    properties = record.properties
    topic, key = properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, "")
    queue_id = _number(properties.get(REAL_QUEUE_ID, ""))
    transaction_id = properties.get(TRANSACTION) or key
    if not topic or queue_id is None or not transaction_id:
        return None
    return Half(
        topic,
        queue_id,
        transaction_id,
        key,
        properties.get(PRODUCER_GROUP, ""),
        _number(properties.get(TRANSACTION_CHECK_TIMES, "")) or 0,
    )


def half_fault(record: Record) -> str | None:
    """Why a client may not put this record to the half topic; None if it may."""
    half, properties = half_of(record), record.properties
    if half is None:
        return f"it must say where its message goes ({REAL_TOPIC}, {REAL_QUEUE_ID}, {UNIQ_KEY})"
    if properties.get(TRANSACTION_PREPARED) != "true":
        return f"{TRANSACTION_PREPARED} must be true"
    if not 0 < len(half.group) <= MOST_GROUP_CHARACTERS:
        return f"{PRODUCER_GROUP} must have 1 to {MOST_GROUP_CHARACTERS} characters"
    if not half.key or properties.get(TRANSACTION_ID) != half.key:
        return f"{TRANSACTION_ID} must be the {UNIQ_KEY}"
    if len(half.transaction_id) > MOST_ID_CHARACTERS:
        return f"the transaction's id must have {MOST_ID_CHARACTERS} characters at most"
    if half.check_times:
        return f"{TRANSACTION_CHECK_TIMES} is written by brokers only: leave it out"
    if record.sys_flag & TRANSACTION_MASK:
        return "the transaction bits of its system flag must be 0"
    return None


def committed_record(record: Record, *, store_host: str, queue_id: int | None = None) -> bytes:
    """The message of a half record, committed; to `queue_id` in place of its own. Raises
    FormatError for a half that does not say where it goes."""
    half = half_of(record)
    if half is None:
        raise FormatError(f"the half at {record.physical_offset} does not say where it goes")
    without = (REAL_TOPIC, REAL_QUEUE_ID, PRODUCER_MARK, CRC32)
    return encode_record(
        topic=half.topic,
        queue_id=half.queue_id if queue_id is None else queue_id,
        body=record.body,
        properties=edited_properties(record.properties_raw, without),
        flag=record.flag,
        sys_flag=record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=name_of(record.physical_offset),
    )


def given_up_record(record: Record, topic: str, *, store_host: str) -> bytes:
    """The half as it is, in the topic where a broker keeps what was never decided; the header names
    the half, for which an OP record is due."""
    return encode_record(
        topic=topic,
        body=record.body,
        properties=edited_properties(record.properties_raw, (PRODUCER_MARK, CRC32)),
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=name_of(record.physical_offset),
    )


def op_record(queue_offsets: Sequence[int], *, now_ms: int, host: str) -> bytes:
    """That the halves at these queue offsets have ended; `host` is the master's address."""
    body = "".join(f"{each}{_SEPARATOR}" for each in queue_offsets)
    return encode_record(
        topic=OP_HALF_TOPIC,
        body=body.encode(),
        properties={TAGS: OP_TAG},
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
    )


def ended_halves(record: Record) -> list[int]:
    """The queue offsets that an OP record names; of a body that names others besides, those that
    can be read."""
    if record.tags != OP_TAG:
        return []
    words = record.body.decode("ascii", "replace").split(_SEPARATOR)
    numbers = (_number(word.strip()) for word in words)
    return [number for number in numbers if number is not None]


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    return int(text)

"""A send with TRAN_MSG=true, as the half that is stored in its place.

    orders/3  TRAN_MSG=true PGROUP=billing UNIQ_KEY=AC11..          what the client sends
        │
        ▼
    RMQ_SYS_TRANS_HALF_TOPIC/0  .. REAL_TOPIC=orders REAL_QID=3 __transactionId__=AC11..
                                   __TL_TX=AC11..-19ac0f-2          what is stored

This is what a broker stores (TransactionalMessageBridge), and one property more. A broker knows a
transaction by its UNIQ_KEY. That is not enough here, where a transaction may have several messages:
a program that sends one Message object twice, in two transactions, uses one UNIQ_KEY for both. So
each half has an id of its own. The client never sees that: it names the half by its place.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from tandemlog.format.constants import (
    DELAY,
    PRODUCER_GROUP,
    TIMERS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from tandemlog.format.errors import FormatError
from tandemlog.format.record.sys_flag import TRANSACTION_MASK
from tandemlog.format.transaction.half import PLACE_OF_HALVES, half_properties

MOST_KEY_CHARACTERS: Final = 80
"""Of a UNIQ_KEY; clients make 32 or 56."""


class OutgoingMessage(Protocol):
    """A message on its way into the store (StoredMessage)."""

    topic: str
    queue_id: int
    properties: dict[str, str]
    sys_flag: int
    born_timestamp: int
    reconsume_times: int


def is_half(message: OutgoingMessage) -> bool:
    """Whether it begins a transaction. A message that an old client returns to its retry topic
    carries the mark of the message that it was, and begins none."""
    properties = message.properties
    if properties.get(TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return not (message.reconsume_times > 0 and DELAY in properties)


def make_half(message: OutgoingMessage, *, producer_group: str, serial: int) -> None:
    """Put a message that begins a transaction where halves wait. `producer_group` is the group of
    the request, which counts where the message names none; `serial` differs for each half of this
    process. UNIQ_KEY is there already, and nothing that only a store writes. Raises FormatError for
    a half that could not be found again, or that asks for a delay."""
    properties = message.properties
    key = properties.get(UNIQ_KEY, "")
    _check(properties, key)
    properties.pop(TRANSACTION_CHECK_TIMES, None)
    properties |= half_properties(
        message.topic,
        message.queue_id,
        group=properties.get(PRODUCER_GROUP) or producer_group,
        key=key,
        transaction_id=f"{key}-{message.born_timestamp & 0xFFFF_FFFF:x}-{serial:x}",
    )
    message.topic, message.queue_id = PLACE_OF_HALVES
    message.sys_flag &= ~TRANSACTION_MASK


def _check(properties: Mapping[str, str], key: str) -> None:
    if not 0 < len(key) <= MOST_KEY_CHARACTERS:
        raise FormatError(
            f"a message of a transaction has a {UNIQ_KEY} of 1 to {MOST_KEY_CHARACTERS} "
            f"characters, not {len(key)}: leave it to the client to set"
        )
    delays = [name for name in (DELAY, *TIMERS) if name in properties]
    if delays:
        raise FormatError(
            f"a message of a transaction cannot be delayed ({', '.join(delays)}): leave the delay "
            "out, or send it outside a transaction"
        )

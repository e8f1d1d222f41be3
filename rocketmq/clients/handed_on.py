"""Requests that one node hands on to another: the marks, and what may be sent twice.

    client ── request, opaque 7 ──▶ slave ── flag | HANDED_ON, opaque 31 ──▶ master
           ◀── answer, opaque 7 ───       ◀── answer, opaque 31 ───────────

Fields and body stay as they came, so the signature of the client is checked by the master too.
HANDED_ON keeps a request from going round in circles: a node that does not lead either answers
NOT_LEADING, after which it is known that nothing was done. REPEATED says that an earlier copy may
have been stored: the master looks for it before it stores this one.

A client that sets these bits itself gets no more than that answer, or that look.
"""

from typing import Final

from ..wire.remoting import Command
from .codes import RequestCode

HANDED_ON: Final = 1 << 16
REPEATED: Final = 1 << 17
"""Bits of a flag of which RocketMQ uses the lowest two."""
NOT_LEADING: Final = 30_014
"""Between nodes alone: this one is not the master, and has done nothing."""
OUTCOME_UNKNOWN: Final = 30_020
"""Of a send that may or may not be stored. No client tries that code again by itself, and all hand
it to the program."""

SENDS: Final = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)
ONCE: Final = frozenset(
    {
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
"""What a second time does again, and nothing recognises. The client has its own way then: it sends
the message itself, or asks again."""


def is_handed_on(request: Command) -> bool:
    return bool(request.flag & HANDED_ON)


def is_repeated(request: Command) -> bool:
    """Whether an earlier copy of this send may have been stored."""
    return bool(request.flag & REPEATED) and request.code in SENDS


def may_repeat(request: Command, *, recognised: bool) -> bool:
    """Whether the request may be sent again although it may have been done: everything that is the
    same when it is done twice, and a send where the master recognises it."""
    if request.code in SENDS:
        return recognised
    return request.code not in ONCE

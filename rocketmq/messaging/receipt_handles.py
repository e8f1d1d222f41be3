"""Receipt handles of the 5.x API are those of work queues (tandemlog/format/lease/handle.py).

A handle names the message: group, queue, log offset and a fingerprint of the record. So any later
master can judge it, and a handle of a message that was cut from the log never ends the one that
lies in its place. What a client sends in place of a handle is judged here: of all that are given
together one bad text must not spoil the others.
"""

from collections.abc import Sequence

from tandemlog.format.errors import FormatError
from tandemlog.format.lease.handle import HANDLE_CHARS, decode_handles
from tandemlog.format.lease.policy import AckResult, ack_sentence
from tandemlog.rocketmq_v2 import messaging_pb2 as v2

from .refusals import made_status

_CODES = {
    AckResult.OK: v2.OK,
    AckResult.ALREADY_DONE: v2.OK,
    AckResult.INVALID_RECEIPT_HANDLE: v2.INVALID_RECEIPT_HANDLE,
    AckResult.OTHER_GROUP: v2.INVALID_RECEIPT_HANDLE,
    AckResult.UNKNOWN_QUEUE: v2.INVALID_RECEIPT_HANDLE,
}


def encoded_handles(texts: Sequence[str]) -> tuple[bytes, list[int]]:
    """Those that are handles, end to end, and their indexes."""
    good: list[bytes] = []
    rows: list[int] = []
    for index, text in enumerate(texts):
        data = text.encode(errors="replace")
        if len(data) == HANDLE_CHARS and _is_handle(data):
            good.append(data)
            rows.append(index)
    return b"".join(good), rows


def _is_handle(data: bytes) -> bool:
    try:
        decode_handles(data)
    except FormatError:
        return False
    return True


def result_status(result: int) -> v2.Status:
    """What a client is told of one handle."""
    known = AckResult(result)
    code = _CODES[known]
    return made_status(code, "OK" if code == v2.OK else ack_sentence(known))

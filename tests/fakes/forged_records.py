"""Bytes of a sender's body that look like a record of the log, at the very place where they come.

sent to `mine`       [head | body: ......[forged head] | topic | properties]
sent to another                              '---- its properties reach over what follows ────▶
"""

from tandemlog.format.record.record import encode_record

REACH = 2_000


def forged_head(
    position: int, *, topic: str, reach: int = REACH, properties: bytes = b"", queue_offset: int = 0
) -> bytes:
    """The head of a record at log offset `position`, whose properties are `properties` and the
    `reach` bytes of the log that come behind it."""
    whole = encode_record(
        topic=topic,
        body=b"",
        properties=properties + b"." * reach,
        queue_offset=queue_offset,
        physical_offset=position,
    )
    return whole[: len(whole) - reach]


def forged_half(position: int, *, topic: str, transaction_id: str, group: str, key: str) -> bytes:
    """A record of the half topic at log offset `position`, as a whole."""
    properties = {
        "UNIQ_KEY": key,
        "TRAN_MSG": "true",
        "PGROUP": group,
        "REAL_TOPIC": topic,
        "REAL_QID": "0",
        "__TL_TX": transaction_id,
        "__transactionId__": key,
    }
    return encode_record(
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        body=b"",
        properties=properties,
        physical_offset=position,
    )

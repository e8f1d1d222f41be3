"""A message as the page gets it: a row of a list, all its fields, its body.

Of a body the page gets at most SHOWN_BYTES, as bytes: the browser shows them as text, JSON or hex.
A compressed body is decompressed as the client does it; for a row only as far as its preview goes,
since a page of rows may be a page of bodies that become gigabytes.
"""

import base64
import codecs
from collections.abc import Mapping
from typing import Any

from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.errors import BadRecordError
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import Record
from tandemlog.format.record.sys_flag import (
    COMPRESSED,
    LZ4,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    ZLIB,
    ZSTD,
    compression_type,
    decompress_body,
    transaction_type,
)

SHOWN_BYTES = 64 << 10
PREVIEW_CHARACTERS = 120
PREVIEW_PACKED = 16 << 10
"""A compressed body that is larger has no preview."""
ROW_CHARACTERS = 200
"""Of a key or tag in a row."""

_COMPRESSION = {LZ4: "LZ4", ZSTD: "Zstandard", ZLIB: "zlib"}
_TRANSACTION = {
    TRANSACTION_PREPARED: "held back by a transaction",
    TRANSACTION_COMMIT: "of a committed transaction",
    TRANSACTION_ROLLBACK: "of a transaction that was rolled back",
}


def row_of(message: ReceivedMessage) -> Mapping[str, Any]:
    """For a list. A damaged record has its place, and `fault`."""
    row: dict[str, Any] = {
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "size": message.size,
    }
    try:
        record = message.record
    except BadRecordError as error:
        return {**row, "fault": str(error)}
    return {
        **row,
        "topic": record.topic,
        "store_timestamp": record.store_timestamp,
        "keys": (record.keys or "")[:ROW_CHARACTERS],
        "tags": (record.tags or "")[:ROW_CHARACTERS],
        "body_bytes": len(record.body),
        "compressed": bool(record.sys_flag & COMPRESSED),
        "preview": _preview(record),
    }


def _preview(record: Record) -> str:
    body = record.body
    if record.sys_flag & COMPRESSED:
        if len(body) > PREVIEW_PACKED:
            return ""
        try:
            body = decompress_body(record.sys_flag, body, SHOWN_BYTES)
        except FormatError:
            return ""
    cut = body[: 4 * PREVIEW_CHARACTERS]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(cut, final=len(cut) == len(body))[:PREVIEW_CHARACTERS]


def details_of(message: ReceivedMessage) -> dict[str, Any]:
    """Every field but the body. Raises BadRecordError."""
    record = message.record
    packed = compression_type(record.sys_flag)
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.size,
        "version": record.version,
        "msg_id": record.msg_id,
        "uniq_key": record.uniq_key,
        "keys": message.keys,
        "tags": record.tags,
        "properties": list(record.properties.items()),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "compression": "" if packed is None else _COMPRESSION.get(packed, f"type {packed}"),
        "transaction": _TRANSACTION.get(transaction_type(record.sys_flag), ""),
        "born_timestamp": record.born_timestamp,
        "born_host": record.born_host,
        "store_timestamp": record.store_timestamp,
        "store_host": record.store_host,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_crc": record.body_crc,
        "stored_body_bytes": len(record.body),
    }


def body_of(message: ReceivedMessage) -> Mapping[str, Any]:
    """What is shown of the body, and what is to be said of it. `not_utf8_at`: the first byte of the
    whole body that is not UTF-8, -1 if all of it is. Large bodies take a while: not in the loop."""
    try:
        body = message.body
    except (BadRecordError, FormatError) as error:
        return {"fault": str(error)}
    try:
        codecs.utf_8_decode(body, "strict", True)
        not_utf8_at = -1
    except UnicodeDecodeError as error:
        not_utf8_at = error.start
    return {
        "bytes": len(body),
        "shown": base64.b64encode(body[:SHOWN_BYTES]).decode(),
        "shown_bytes": min(len(body), SHOWN_BYTES),
        "not_utf8_at": not_utf8_at,
    }

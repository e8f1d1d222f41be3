"""Receipt handles: what a consumer of a work queue sends back to say that a message is done.

    version 1 | flags 1 | attempt 2 | queue 4 | group 4 | lease 4 | topic 8 | queue offset 8
    log offset 8 | fingerprint 4 | term 4                              48 bytes = 64 characters

A handle names the message and not only its place: where it lies in the log, and a fingerprint of
its header. A log that was cut has another message at the same queue offset later; a handle of the
first one then says nothing about the second. Group and topic are hashes, because the caller names
the group and the node knows its topics. `lease` counts the deliveries of one master's `term`: a
lease that has ended and was given to another consumer has another number.

A client treats a handle as text. All handles of an answer are one text of 64 characters each, so
that a node encodes and decodes a batch as one array.
"""

import base64
import binascii
import hashlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..columns.headers import HeaderColumns
from ..errors import FormatError
from ..fast_crc import crc32
from .policy import HANDLE_CHARS as HANDLE_CHARS

HANDLE_VERSION: Final = 1
HANDLE: Final = np.dtype(
    [
        ("version", "u1"),
        ("flags", "u1"),
        ("attempt", "<u2"),
        ("queue_id", "<u4"),
        ("group", "<u4"),
        ("lease", "<u4"),
        ("topic", "<u8"),
        ("queue_offset", "<i8"),
        ("log_offset", "<i8"),
        ("fingerprint", "<u4"),
        ("term", "<u4"),
    ]
)
_SIZE: Final = HANDLE.itemsize
_MIXERS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)

assert _SIZE * 4 == HANDLE_CHARS * 3


def group_hash(group: str) -> int:
    """32 bits: tells a handle of another group."""
    return crc32(group.encode())


def topic_hash(topic: str) -> int:
    """64 bits, by which a node finds the topic of a handle among those that it knows."""
    digest = hashlib.blake2b(topic.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def fingerprints(headers: HeaderColumns) -> NDArray[np.uint32]:
    """u4[n]: tells two messages at the same place of two histories of a log apart, by the times,
    the size and the CRC that their records carry."""
    mixed = np.zeros(headers.count, np.uint64)
    columns: tuple[NDArray[Any], ...] = (
        headers.store_timestamp,
        headers.born_timestamp,
        headers.body_crc,
        headers.sizes,
    )
    for column, mixer in zip(columns, _MIXERS, strict=True):
        mixed ^= column.astype(np.int64).view(np.uint64) * np.uint64(mixer)
    folded = mixed ^ (mixed >> np.uint64(32))
    return folded.astype(np.uint32)


def encode_handles(columns: NDArray[np.void]) -> bytes:
    """HANDLE[n] as 64 * n characters."""
    return base64.urlsafe_b64encode(columns.tobytes())


def decode_handles(text: bytes) -> NDArray[np.void]:
    """HANDLE[n] of 64 * n characters. Raises FormatError for another length or other characters;
    what the fields say is not judged here."""
    if len(text) % HANDLE_CHARS:
        raise FormatError(
            f"receipt handles have {HANDLE_CHARS} characters each: {len(text)} is no multiple"
        )
    try:
        data = base64.b64decode(text, altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise FormatError(f"receipt handles: {error}") from error
    if len(data) * HANDLE_CHARS != len(text) * _SIZE:
        raise FormatError("receipt handles: one of them is padded")
    return np.frombuffer(data, HANDLE)


def handle_texts(joined: bytes) -> list[str]:
    """Each handle of a joined text by itself."""
    text = joined.decode("ascii")
    return [text[at : at + HANDLE_CHARS] for at in range(0, len(text), HANDLE_CHARS)]

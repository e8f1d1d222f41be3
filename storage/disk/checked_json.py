"""A JSON document with a checksum, for tandemlog's own small files.

line 1   crc32 of the rest, decimal
line 2   JSON
"""

import json
from typing import Any

from tandemlog.format.fast_crc import crc32


def encode_checked(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, separators=(",", ":")).encode()
    return b"%d\n%s\n" % (crc32(text), text)


def decode_checked(data: bytes) -> dict[str, Any]:
    """Raises ValueError for anything that `encode_checked` has not written."""
    first, _, rest = data.partition(b"\n")
    text = rest.removesuffix(b"\n")
    if not first.isdigit() or int(first) != crc32(text):
        raise ValueError("its checksum is wrong")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document

"""JSON in gzip with a limit: what manifests and states are, so `zcat` and `jq` read them.

The same value has the same bytes on every node that has the same zlib, whatever the time.
"""

import gzip
import json
import zlib
from typing import Any, Final

from ..errors import FormatError

MOST_BYTES: Final = 1 << 30
"""Unpacked: the manifest of an archive of a petabyte is smaller."""
_GZIP: Final = 31  # zlib's number for a gzip header
_LEVEL: Final = 6


def pack_json(value: object) -> bytes:
    """Raises FormatError for what takes more than `MOST_BYTES`, which no reader would take."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    content = text.encode()
    if len(content) > MOST_BYTES:
        raise FormatError(f"{len(content)} bytes of JSON; the limit is {MOST_BYTES}")
    return gzip.compress(content, _LEVEL, mtime=0)


def unpack_json(content: bytes, most_bytes: int = MOST_BYTES) -> Any:
    """Raises FormatError for what is no JSON in gzip, cut short, followed by more, or larger than
    `most_bytes` when unpacked: it is not unpacked further than that."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        text = unpacker.decompress(content, most_bytes + 1)
    except zlib.error as error:
        raise FormatError(f"no gzip: {error}") from error
    if len(text) > most_bytes:
        raise FormatError(f"more than {most_bytes} bytes when unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise FormatError("gzip that is cut short, or followed by other bytes")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no JSON: {error}") from error

"""The form that all snapshots of folds have on the disk.

    {"version": V, "log_offset": P, ...}                 one line: JSON, what a fold adds behind
    rows                                                 any bytes, the fold's own form
    crc32 of all that, 8 hexadecimal digits              one line

True for the log below P.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tandemlog.format.errors import FormatError
from tandemlog.format.fast_crc import crc32

_CHECKSUM_SIZE: Final = 10


def encode_snapshot(head: Mapping[str, Any], rows: Iterable[bytes]) -> bytes:
    """`head` has at least `version` and `log_offset`."""
    line = json.dumps(head, separators=(",", ":")).encode()
    text = b"".join((line, b"\n", *rows))
    return b"%s\n%08x\n" % (text, crc32(text))


def decode_snapshot(data: bytes, version: int, name: str) -> tuple[dict[str, Any], bytes]:
    """Head and rows. Raises FormatError for another version, a wrong checksum, another form;
    `name` says whose snapshot it is."""
    head, rows = _parted(data, name)
    if head["version"] != version:
        raise FormatError(f"{name}: its version is not {version}")
    return head, rows


def check_form(data: bytes) -> None:
    """Raises FormatError for bytes that `encode_snapshot` has not written."""
    _parted(data, "a snapshot of a fold")


def _parted(data: bytes, name: str) -> tuple[dict[str, Any], bytes]:
    text, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
    if checksum != b"\n%08x\n" % crc32(text):
        raise FormatError(f"{name}: its checksum is wrong")
    line, _, rows = text.partition(b"\n")
    try:
        head = json.loads(line)
        int(head["version"])
        int(head["log_offset"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{name}: it has another form: {error!r}") from error
    return head, rows


def snapshot_offset(data: bytes) -> int:
    """The log offset up to which a snapshot is true. Raises FormatError."""
    try:
        return int(json.loads(data.partition(b"\n")[0])["log_offset"])
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"a snapshot of a fold: it has another form: {error!r}") from error

"""The system flag of a record, bit by bit, and what it says of the body."""

import importlib
import zlib
from typing import Final

from ..errors import FormatError

COMPRESSED: Final = 0x001
TRANSACTION_MASK: Final = 0x00C
"""Compare the masked value: ROLLBACK is a value, not PREPARED and COMMIT together."""
TRANSACTION_NONE: Final = 0x000
TRANSACTION_PREPARED: Final = 0x004
TRANSACTION_COMMIT: Final = 0x008
TRANSACTION_ROLLBACK: Final = 0x00C
BORN_HOST_IPV6: Final = 0x010
STORE_HOST_IPV6: Final = 0x020
INNER_BATCH: Final = 0x080
COMPRESSION_MASK: Final = 0x700
COMPRESSION_SHIFT: Final = 8

LZ4: Final = 1
ZSTD: Final = 2
ZLIB: Final = 3

MOST_UNPACKED: Final = 64 << 20
"""Bytes of a decompressed body: sixteen times what a message may have by default (RocketMQ's 4 MiB,
which is checked before it is compressed). A broker can allow more: UNPACKED_VARIABLE."""
UNPACKED_VARIABLE: Final = "TANDEMLOG_MAX_UNPACKED_BYTES"
"""Of the environment, in place of MOST_UNPACKED (unpacking.py); here for the text of an error."""
_PIECE: Final = 1 << 10


def transaction_type(flag: int) -> int:
    """One of the four TRANSACTION_ values."""
    return flag & TRANSACTION_MASK


def compression_type(flag: int) -> int | None:
    """LZ4, ZSTD or ZLIB (also where an old client left the type at 0), None if not compressed.

    Another type comes back as its number, 4 to 7.
    """
    if not flag & COMPRESSED:
        return None
    return (flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT or ZLIB


def with_compression(flag: int, compression: int) -> int:
    """`flag` saying that the body is compressed with LZ4, ZSTD or ZLIB."""
    return flag & ~COMPRESSION_MASK | COMPRESSED | compression << COMPRESSION_SHIFT


def decompress_body(flag: int, body: bytes, most: int = MOST_UNPACKED) -> bytes:
    """The body as the producer gave it, of `most` bytes.

    LZ4 (its frame format) and ZSTD need the extras `lz4` and `zstd`. Raises FormatError naming an
    extra that is missing, a type that is unknown, or the fault of a body that is not what it says
    or becomes larger than `most`: a megabyte may become a gigabyte of zeros.
    """
    kind = compression_type(flag)
    if kind is None:
        return body
    if kind == ZLIB:
        try:
            reader = zlib.decompressobj()
            plain = reader.decompress(body, most + 1)
        except zlib.error as error:
            raise FormatError(f"body: not valid zlib data: {error}") from error
        _check_size(len(plain), most)
        if not reader.eof:
            raise FormatError("body: not valid zlib data: incomplete or truncated stream")
        return plain
    if kind in _LIBRARIES:
        return _decompress_by_library(*_LIBRARIES[kind], body, most)
    raise FormatError(f"body: compression type {kind} is not known (1 LZ4, 2 ZSTD, 3 ZLIB)")


_LIBRARIES: Final = {LZ4: ("lz4.frame", "lz4"), ZSTD: ("zstandard", "zstd")}
"""Module, and the extra that brings it: few need them, so they are imported when first used."""


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise FormatError(
            f"body: it becomes more than {most} bytes when it is decompressed; to read it all the "
            f"same, set {UNPACKED_VARIABLE} in the environment of the reader"
        )


def _decompress_by_library(module_name: str, extra: str, body: bytes, most: int) -> bytes:
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise FormatError(
            f"body: compressed with {extra}, which is not installed: "
            f"pip install 'tandemlog[{extra}]'"
        ) from error
    try:
        if extra == "lz4":
            reader = module.LZ4FrameDecompressor()
            plain = bytes(reader.decompress(body, most + 1))
            size = len(plain)
        else:
            # A frame of a stream does not say its size, which only the reader of streams goes
            # without: it is read in pieces that cannot become much each.
            known = module.frame_content_size(body)
            reader = module.ZstdDecompressor().decompressobj()
            step, pieces, size = len(body) if 0 <= known <= most else _PIECE, list[bytes](), 0
            for at in range(0, len(body), step):
                if reader.eof or size > most:
                    break
                pieces.append(bytes(reader.decompress(body[at : at + step])))
                size += len(pieces[-1])
            plain = b"".join(pieces)
    except Exception as error:  # each library has its own family of errors
        raise FormatError(f"body: not valid {extra} data: {error}") from error
    _check_size(size, most)
    if not reader.eof:
        raise FormatError(f"body: not valid {extra} data: it ends early")
    return plain

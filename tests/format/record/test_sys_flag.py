"""The system flag's bits, and bodies that are compressed as it says."""

import random
import sys
import zlib
from collections.abc import Callable
from functools import partial

import lz4.frame
import pytest
import zstandard

from tandemlog.format.errors import FormatError
from tandemlog.format.record import sys_flag
from tandemlog.format.record.sys_flag import (
    COMPRESSED,
    LZ4,
    ZLIB,
    ZSTD,
    compression_type,
    decompress_body,
    transaction_type,
    with_compression,
)


def test_transaction_is_a_value_not_two_flags() -> None:
    assert transaction_type(0x7F3) == sys_flag.TRANSACTION_NONE
    assert transaction_type(0x014) == sys_flag.TRANSACTION_PREPARED
    assert transaction_type(0x018) == sys_flag.TRANSACTION_COMMIT
    assert transaction_type(0x00C) == sys_flag.TRANSACTION_ROLLBACK


@pytest.mark.parametrize(
    ("flag", "expected"),
    [(0x000, None), (0x300, None), (0x001, ZLIB), (0x301, ZLIB), (0x101, LZ4), (0x201, ZSTD)],
)
def test_compression_type(flag: int, expected: int | None) -> None:
    assert compression_type(flag) == expected


@pytest.mark.parametrize("kind", [LZ4, ZSTD, ZLIB])
def test_setting_the_compression(kind: int) -> None:
    flag = with_compression(0x734, kind)
    assert compression_type(flag) == kind
    assert flag & 0x034 == 0x034


@pytest.mark.parametrize("flag", [COMPRESSED, with_compression(0, ZLIB)])
def test_zlib_bodies(flag: int) -> None:
    assert decompress_body(flag, zlib.compress(b"hello")) == b"hello"


def test_plain_bodies_are_left_alone() -> None:
    assert decompress_body(0x300, b"hello") == b"hello"


@pytest.mark.parametrize("body", [b"hello", b"", zlib.compress(b"hello" * 50)[:-8]])
def test_a_body_that_is_not_zlib(body: bytes) -> None:
    with pytest.raises(FormatError, match="not valid zlib data"):
        decompress_body(COMPRESSED, body)


@pytest.mark.parametrize(
    ("kind", "module", "extra"), [(LZ4, "lz4.frame", "lz4"), (ZSTD, "zstandard", "zstd")]
)
def test_names_the_extra_that_is_missing(
    kind: int, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FormatError, match=rf"pip install 'tandemlog\[{extra}\]'"):
        decompress_body(with_compression(0, kind), b"x")


def zstd_stream(body: bytes) -> bytes:
    """As RocketMQ's ZstdOutputStream writes it: the frame does not say how long the body is."""
    writer = zstandard.ZstdCompressor(level=5).compressobj()
    return bytes(writer.compress(body) + writer.flush())


PACKED = {
    "lz4": (LZ4, lz4.frame.compress),
    "lz4-blocks": (LZ4, partial(lz4.frame.compress, block_linked=False, store_size=False)),
    "zstd": (ZSTD, zstandard.ZstdCompressor().compress),
    "zstd-stream": (ZSTD, zstd_stream),
}


@pytest.mark.parametrize(("kind", "compress"), PACKED.values(), ids=PACKED)
@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_bodies_of_the_libraries(kind: int, compress: Callable[[bytes], bytes], size: int) -> None:
    body = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    assert decompress_body(with_compression(0, kind), compress(body)) == body


@pytest.mark.parametrize(("kind", "compress"), PACKED.values(), ids=PACKED)
def test_a_body_that_is_cut_or_something_else(
    kind: int, compress: Callable[[bytes], bytes]
) -> None:
    packed = compress(bytes(range(256)) * 40)
    for wrong in (b"", b"hello", packed[: len(packed) // 2], packed[:-1]):
        with pytest.raises(FormatError, match=r"not valid (lz4|zstd) data"):
            decompress_body(with_compression(0, kind), wrong)


@pytest.mark.parametrize(
    ("kind", "compress"), [*PACKED.values(), (ZLIB, zlib.compress)], ids=[*PACKED, "zlib"]
)
def test_a_body_that_becomes_too_large(kind: int, compress: Callable[[bytes], bytes]) -> None:
    packed = compress(bytes(10 << 20))
    with pytest.raises(FormatError, match="becomes more than 1000000 bytes"):
        decompress_body(with_compression(0, kind), packed, 1_000_000)
    assert len(decompress_body(with_compression(0, kind), packed, 10 << 20)) == 10 << 20


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(FormatError, match="type 5 is not known"):
        decompress_body(0x501, b"x")

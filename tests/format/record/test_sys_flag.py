"""The system flag's bits, and bodies that are compressed as it says."""

import sys
import zlib
from types import SimpleNamespace

import pytest

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
    ("kind", "module", "library"), [(LZ4, "lz4.frame", "lz4"), (ZSTD, "zstandard", "zstandard")]
)
def test_names_a_library_that_is_missing(
    kind: int, module: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FormatError, match=f"install the Python library `{library}`"):
        decompress_body(with_compression(0, kind), b"x")


def _reverse(body: bytes) -> bytes:
    if not body:
        raise RuntimeError("nothing there")
    return body[::-1]


@pytest.mark.parametrize("kind", [LZ4, ZSTD])
def test_uses_a_library_that_is_there(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = SimpleNamespace(decompressobj=lambda: SimpleNamespace(decompress=_reverse))
    monkeypatch.setitem(sys.modules, "lz4.frame", SimpleNamespace(decompress=_reverse))
    monkeypatch.setitem(sys.modules, "zstandard", SimpleNamespace(ZstdDecompressor=lambda: reader))
    assert decompress_body(with_compression(0, kind), b"abc") == b"cba"
    with pytest.raises(FormatError, match="nothing there"):
        decompress_body(with_compression(0, kind), b"")


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(FormatError, match="type 5 is not known"):
        decompress_body(0x501, b"x")

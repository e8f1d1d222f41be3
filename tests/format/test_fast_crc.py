"""The CRC is the one that RocketMQ writes."""

import importlib
import random
import sys
import zlib

import pytest

from tandemlog.format import fast_crc

DATA = random.Random(5).randbytes(20_000)
SIZES = (*range(300), 511, 512, 513, 1024, 4095, 4096, 4097, 16_000)


def test_it_is_that_of_zlib() -> None:
    for size in SIZES:
        for start in (0, 1, 7, 64):
            body = DATA[start : start + size]
            assert fast_crc.crc32(body) == zlib.crc32(body), (start, size)
            view = memoryview(DATA)[start : start + size]
            assert fast_crc.crc32(view) == zlib.crc32(body), (start, size)


def test_without_zlib_ng_it_is_zlibs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = fast_crc.crc32
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
        assert importlib.reload(fast_crc).crc32 is zlib.crc32
    assert importlib.reload(fast_crc).crc32 is chosen

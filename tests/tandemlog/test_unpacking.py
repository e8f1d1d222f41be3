"""A reader may allow larger bodies than there are by default."""

import zlib
from collections.abc import Callable, Iterator

import pytest

from tandemlog.format.errors import FormatError
from tandemlog.format.record.sys_flag import (
    MOST_UNPACKED,
    UNPACKED_VARIABLE,
    ZLIB,
    with_compression,
)
from tandemlog.unpacking import most_unpacked, unpacked


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the variable, as if the process began with it."""

    def set_to(text: str) -> None:
        monkeypatch.setenv(UNPACKED_VARIABLE, text)
        most_unpacked.cache_clear()

    yield set_to
    most_unpacked.cache_clear()


def test_the_limit_can_be_set_for_a_process(limit: Callable[[str], None]) -> None:
    packed, flag = zlib.compress(bytes(2_000)), with_compression(0, ZLIB)
    limit("1999")
    with pytest.raises(FormatError, match=r"more than 1999 bytes .* TANDEMLOG_MAX_UNPACKED"):
        unpacked(flag, packed)
    limit("2000")
    assert len(unpacked(flag, packed)) == 2_000
    limit("")
    assert most_unpacked() == MOST_UNPACKED


@pytest.mark.parametrize("text", ["64M", "0", "-1", "9" * 5_000])
def test_a_limit_that_is_no_number_of_bytes_is_named(
    limit: Callable[[str], None], text: str
) -> None:
    limit(text)
    with pytest.raises(FormatError, match="TANDEMLOG_MAX_UNPACKED_BYTES must be a number of bytes"):
        unpacked(with_compression(0, ZLIB), zlib.compress(b"x"))
    assert unpacked(0, b"plain") == b"plain"

"""CRCs of many bodies equal zlib's one by one."""

import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.arrays.ragged import offsets_of
from tandemlog.format.columns.crcs import body_crcs, first_bad_crc


def crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 60))
def test_body_crcs(bodies: list[bytes], times: int) -> None:
    bodies = bodies * times
    offsets = offsets_of(np.array([len(body) for body in bodies], np.int64))
    crcs = body_crcs(b"".join(bodies), offsets[:-1], offsets[1:] - offsets[:-1])
    assert crcs.dtype == np.int32
    assert crcs.tolist() == [crc(body) for body in bodies]


def test_bodies_of_one_length_of_large_and_of_scattered_ones() -> None:
    data = np.random.default_rng(3).integers(0, 256, 300_000, np.uint8)
    for starts, lengths in (
        (np.arange(1200) * 7, np.full(1200, 128)),
        (np.arange(1200) * 7, np.full(1200, 512)),
        (np.arange(1200) * 7, np.full(1200, 513)),
        (np.arange(1200) * 7, np.arange(1200)),
        (np.arange(10) * 20_000, np.full(10, 15_000)),
        (np.array([299_990, 5, 100_000]), np.array([10, 0, 7])),
        (np.array([0, 299_000]), np.array([3, 1000])),
    ):
        expected = [
            crc(data[start : start + length].tobytes())
            for start, length in zip(starts, lengths, strict=True)
        ]
        assert body_crcs(data, starts, lengths).tolist() == expected


def test_first_bad_crc() -> None:
    starts, lengths = np.array([0, 3, 3, 5]), np.array([3, 0, 2, 4])
    right = body_crcs(b"abcdefghi", starts, lengths)
    assert first_bad_crc(b"abcdefghi", starts, lengths, right) == -1
    # The CRC of an empty body is never looked at.
    assert first_bad_crc(b"abcdefghi", starts, lengths, right + np.array([0, 1, 0, 0])) == -1
    assert first_bad_crc(b"abcdefghi", starts, lengths, right + np.array([0, 1, 1, 1])) == 2
    assert first_bad_crc(b"", starts[:0], lengths[:0], right[:0]) == -1

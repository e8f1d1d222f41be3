"""Progress records: what is written is read again, and nothing else is."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.lease.progress import (
    Progress,
    ProgressKind,
    QueueProgress,
    decode_progress,
    encode_progress,
    split,
)

OFFSETS = st.integers(0, (1 << 63) - 1)
NAMES = st.text(min_size=1, max_size=20)


@st.composite
def entries(draw: st.DrawFn) -> QueueProgress:
    bounds = sorted(draw(st.lists(OFFSETS, unique=True, max_size=12)))
    bounds = bounds[: len(bounds) // 2 * 2]
    offsets = sorted(draw(st.lists(OFFSETS, unique=True, max_size=8)))
    count = len(offsets)
    attempts = draw(st.lists(st.integers(0, 65_535), min_size=count, max_size=count))
    first = draw(st.lists(st.integers(0, 1 << 42), min_size=count, max_size=count))
    return QueueProgress(
        draw(NAMES),
        draw(NAMES),
        draw(st.integers(0, 65_535)),
        draw(st.integers(0, (1 << 32) - 1)),
        draw(st.none() | OFFSETS),
        np.array(bounds[::2], np.int64),
        np.array(bounds[1::2], np.int64),
        np.array(offsets, np.int64),
        np.array(attempts, np.uint16),
        np.array(first, np.int64),
        draw(st.dictionaries(OFFSETS, st.text(max_size=30), max_size=3)),
        draw(st.booleans()),
    )


def plain(entry: QueueProgress) -> tuple[object, ...]:
    values = (getattr(entry, name) for name in QueueProgress.__dataclass_fields__)
    return tuple(each.tolist() if isinstance(each, np.ndarray) else each for each in values)


@given(
    st.lists(entries(), max_size=4),
    st.sampled_from(ProgressKind),
    st.integers(0, (1 << 64) - 1),
    st.integers(1, 9),
)
def test_what_is_encoded_is_decoded(
    rows: list[QueueProgress], kind: ProgressKind, set_id: int, pieces: int
) -> None:
    said = Progress(rows, kind, set_id, pieces - 1, pieces)
    read = decode_progress(encode_progress(said))
    assert [plain(each) for each in read.entries] == [plain(each) for each in rows]
    assert (read.kind, read.set_id, read.piece, read.pieces) == (kind, set_id, pieces - 1, pieces)


@given(st.lists(entries(), min_size=1, max_size=3), st.data())
def test_damaged_bytes_are_an_error_or_a_record(
    rows: list[QueueProgress], data: st.DataObject
) -> None:
    body = bytearray(encode_progress(Progress(rows)))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        decode_progress(bytes(body))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_error(body: bytes) -> None:
    with pytest.raises(FormatError):
        decode_progress(body)


def test_a_thousand_messages_in_a_row_take_some_bytes() -> None:
    offsets = np.arange(5_000_000, 5_001_000, dtype=np.int64)
    entry = QueueProgress(
        "g", "t", 3, ended_starts=offsets[:1], ended_ends=offsets[-1:], offsets=offsets,
        attempts=np.ones(1_000, np.uint16), first_ms=np.full(1_000, 1_700_000_000_000),
    )  # fmt: skip
    assert len(encode_progress(Progress([entry]))) < 150


def test_entries_are_split_into_records_of_a_size() -> None:
    row = QueueProgress("g", "t", 0, offsets=np.arange(100), attempts=np.ones(100, np.uint16))
    records = split([row] * 10, max_weight=3 * row.weight)
    assert [len(each) for each in records] == [3, 3, 3, 1]
    assert [len(each) for each in split([row] * 2, max_weight=1)] == [1, 1]
    assert split([], 100) == []

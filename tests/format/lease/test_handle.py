"""Receipt handles, by columns."""

import base64
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.errors import FormatError
from tandemlog.format.lease.handle import (
    HANDLE,
    HANDLE_CHARS,
    decode_handles,
    encode_handles,
    fingerprints,
    group_hash,
    handle_texts,
    topic_hash,
)
from tandemlog.format.record.record import encode_record


@given(st.binary(max_size=48 * 5))
def test_handles_of_a_batch_are_those_of_each(data: bytes) -> None:
    data = data[: len(data) // 48 * 48]
    columns = np.frombuffer(data, HANDLE)
    joined = encode_handles(columns)
    assert decode_handles(joined).tobytes() == data
    texts = handle_texts(joined)
    assert texts == [
        base64.urlsafe_b64encode(data[at : at + 48]).decode() for at in range(0, len(data), 48)
    ]


@pytest.mark.parametrize(
    "text", [b"x", b"A" * 63, b"A" * 65, b"!" * 64, b"A" * 62 + b"==", b"A" * 60 + b"=" * 4]
)
def test_other_texts_are_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        decode_handles(text)


def test_a_handle_has_the_size_that_it_says() -> None:
    assert len(encode_handles(np.zeros(3, HANDLE))) == 3 * HANDLE_CHARS


def test_a_fingerprint_tells_messages_apart() -> None:
    def record(**changes: object) -> bytes:
        fields: dict[str, object] = {"topic": "t", "body": b"body", "properties": b""}
        return encode_record(**{**fields, **changes})  # type: ignore[arg-type]

    records = [
        record(),
        record(body=b"bodz"),
        record(born_timestamp=1),
        record(properties=b"a\x01b\x02"),
    ]
    sizes = np.array([len(each) for each in records])
    headers = gather_headers(b"".join(records), np.cumsum(sizes) - sizes, sizes)
    assert len(set(fingerprints(headers).tolist())) == 4


def test_hashes_do_not_depend_on_the_process() -> None:
    assert group_hash("billing") == crc32(b"billing")
    assert topic_hash("orders") == 5584380421345094869
    assert topic_hash("orders") != topic_hash("Orders")

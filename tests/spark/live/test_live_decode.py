import numpy as np
import pytest

from tandemlog.consume.received import ReceivedBatch
from tandemlog.errors import BadRecordError
from tandemlog.format.record.record import encode_record
from tandemlog.format.record.sys_flag import ZLIB, with_compression
from tandemlog.spark.live.decode import decode

COLUMNS = {"queue_offset": "long", "body": "binary"}


def batch(*records: bytes) -> ReceivedBatch:
    return ReceivedBatch(
        topic="t",
        queue_id=3,
        status="FOUND",
        next_offset=0,
        min_offset=0,
        max_offset=0,
        records=memoryview(b"".join(records)),  # type: ignore[arg-type]
        sizes=np.array([len(each) for each in records], np.uint32),
    )


def record(offset: int, body: bytes, sys_flag: int = 0) -> bytes:
    return encode_record(topic="t", body=body, queue_offset=offset, sys_flag=sys_flag)


def test_bytes_that_are_no_record() -> None:
    bad = bytearray(record(7, b"abc"))
    bad[84] ^= 1
    with pytest.raises(BadRecordError, match="t/3 offset 7: the record does not hold together"):
        decode(batch(bytes(bad)), COLUMNS)


def test_a_body_that_cannot_be_decompressed() -> None:
    with pytest.raises(BadRecordError, match="t/3 offset 2: body: not valid zlib"):
        decode(batch(record(2, b"x", with_compression(0, ZLIB))), COLUMNS)
    metadata = decode(
        batch(record(2, b"x", with_compression(0, ZLIB))),
        {"queue_offset": "long"},
    )
    assert metadata.column("queue_offset").to_pylist() == [2]

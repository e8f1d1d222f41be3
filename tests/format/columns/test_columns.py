"""Header columns equal the fields that the plain decoder reads."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers.record_strategies import LogPiece, log_of, log_pieces
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.constants import MAGIC_V1, MAGIC_V2
from tandemlog.format.record.host import host_text
from tandemlog.format.record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6


@given(log_pieces())
def test_columns_equal_the_plain_decoder(log: LogPiece) -> None:
    headers = gather_headers(log.buffer, log.positions, log.sizes)
    records = log.records()
    assert headers.count == len(records)
    assert headers.well_formed.all()
    for name in (
        "queue_id",
        "flag",
        "queue_offset",
        "physical_offset",
        "sys_flag",
        "born_timestamp",
        "store_timestamp",
        "reconsume_times",
        "prepared_transaction_offset",
        "body_crc",
    ):
        assert getattr(headers, name).tolist() == [getattr(each, name) for each in records], name
    assert headers.stored_size.tolist() == [each.size for each in records]
    magics = {1: MAGIC_V1, 2: MAGIC_V2}
    assert headers.magic.tolist() == [magics[each.version] for each in records]

    def text(row: int, part: str) -> bytes:
        start = int(getattr(headers, f"{part}_start")[row])
        return log.buffer[start : start + int(getattr(headers, f"{part}_length")[row])]

    for row, record in enumerate(records):
        assert text(row, "body") == record.body
        assert text(row, "topic").decode("utf-8", "replace") == record.topic
        assert text(row, "properties") == record.properties_raw
        for part, bit, host in (
            ("born", BORN_HOST_IPV6, record.born_host),
            ("store", STORE_HOST_IPV6, record.store_host),
        ):
            start = int(getattr(headers, f"{part}_host_start")[row])
            stored = log.buffer[start : start + (20 if record.sys_flag & bit else 8)]
            assert host_text(stored) == host


@given(log_pieces(min_size=2), st.data())
def test_head_is_the_first_records(log: LogPiece, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, log.count))
    headers = gather_headers(log.buffer, log.positions, log.sizes).head(count)
    assert headers.count == count
    assert headers.queue_offset.tolist() == [each.queue_offset for each in log.records()[:count]]


@given(st.binary(max_size=300), st.data())
def test_headers_of_anything(buffer: bytes, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.tuples(st.integers(-9, 310), st.integers(-9, 310)), max_size=9))
    table = np.array(places, np.int64).reshape(-1, 2)
    headers = gather_headers(buffer, table[:, 0], table[:, 1])
    assert not headers.well_formed.any()


def test_records_outside_the_buffer_do_not_disturb_the_others() -> None:
    log = log_of([{"topic": "T", "body": b"x", "queue_offset": 7}] * 2)
    positions = np.array([0, 5_000, log.positions[1], -3], np.int64)
    sizes = np.array([log.sizes[0], log.sizes[0], log.sizes[1], 100], np.int64)
    headers = gather_headers(log.buffer, positions, sizes)
    assert headers.well_formed.tolist() == [True, False, True, False]
    assert headers.queue_offset.tolist() == [7, 0, 7, 0]
    assert headers.body_length.tolist() == [1, 0, 1, 0]

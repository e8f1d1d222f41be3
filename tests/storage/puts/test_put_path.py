"""What the door of the put path takes is kept: by an open after a crash, and by dispatch, which
sees the marks that the put has seen and no others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.batches import Put, batch_of
from fakes.stores import Bench
from tandemlog.format.columns.dispatch import dispatch_columns
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.record.producer_mark import parse_producer_mark
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.log import batch_check as append_check
from tandemlog_server.storage.log.batch_check import check_batch
from tandemlog_server.storage.log.record_check import RecordLimits
from tandemlog_server.storage.puts.retried_requests import mark_of

LIMITS = RecordLimits(max_body=4096, max_batch=1 << 20, max_record=8000, store_host_ipv6=False)
MARK = b"__TL_SEQ\x01p,0,0,0,2\x02"

pieces = st.sampled_from(
    [b"", b"\0", b"\0" * 9, b"\x01", b"\x02", b"K", b"TAGS\x01a\x02", b"__TL_SEQ", MARK, MARK[:-1],
     b"__TL_SEQ\x01\x02", b"__TL_SEQ\x01x\x02", b"Q\x01", b"UNIQ_KEY\x01" + b"7" * 32]
)  # fmt: skip
properties = st.lists(pieces, max_size=4).map(b"".join)
bodies = st.sampled_from([b"", b"x", b"\0" * 20, b"x" + b"\0" * 4000, MARK])


@settings(max_examples=150, deadline=None)
@given(bodies, properties)
def test_the_last_record_that_was_taken_and_fsynced_is_there_after_a_crash(
    body: bytes, end: bytes
) -> None:
    bench = Bench()
    bench.put(1)
    bench.store.persist()
    try:
        bench.store.put(batch_of([Put("T", 0, b"y"), Put("T", 0, body, end)]))
    except BatchRefusedError:
        return
    bench.store.flush()
    expected = bench.store.log.wrote.value
    bench.crash()
    assert bench.store.log.wrote.value == expected
    assert bench.bodies()[-2:] == [b"y", body]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(bodies, properties), min_size=1, max_size=3), st.booleans())
def test_dispatch_judges_marks_as_the_put_did(
    records: list[tuple[bytes, bytes]], by_columns: bool
) -> None:
    batch = batch_of([Put("T", 0, *each) for each in records])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append_check, "FEW_RECORDS", 0 if by_columns else 64)
        try:
            checked = check_batch(batch, LIMITS)
        except BatchRefusedError:
            return
    mark = mark_of(batch)
    columns = dispatch_columns(
        batch.records,
        checked.positions,
        checked.sizes,
        0,
        headers=gather_headers(batch.records, checked.positions, checked.sizes),
    )
    found = columns.producer_marks
    assert [(row, parse_producer_mark(value)) for row, value in found] == (
        [] if mark is None else [(0, mark)]
    )

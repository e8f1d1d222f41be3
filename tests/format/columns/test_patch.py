"""Patched records are those that a plain encoder writes with the final values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.record_strategies import log_of, record_arguments
from tandemlog.format.columns.patch import patch_stored_fields
from tandemlog.format.errors import FormatError
from tandemlog.format.record.host import host_bytes

IPV4, IPV6 = "10.0.0.5:10911", "[0:0:0:0:0:0:0:1]:5"


@pytest.mark.parametrize("store_host", [IPV4, IPV6])
@pytest.mark.parametrize("times", [1, 25])
@given(arguments=st.lists(record_arguments(), max_size=4), base=st.sampled_from([0, 1 << 40]))
def test_patched_equals_encoded(
    arguments: list[dict[str, object]], base: int, store_host: str, times: int
) -> None:
    final = [
        {
            **each,
            "queue_offset": (1 << 33) + row,
            "store_timestamp": 1_700_000_000_123,
            "store_host": store_host,
            "property_crc": False,  # it would cover the patched fields
        }
        for row, each in enumerate(arguments * times)
    ]
    unset_host = "0.0.0.0:0" if store_host == IPV4 else "[0:0:0:0:0:0:0:0]:0"
    unset = {"queue_offset": 0, "store_timestamp": 0, "store_host": unset_host}
    expected = log_of(final, base)
    framed = log_of([{**each, **unset} for each in final])
    buffer = np.frombuffer(bytearray(framed.buffer), np.uint8)
    patch_stored_fields(
        buffer,
        framed.positions,
        queue_offsets=np.arange(len(final)) + (1 << 33),
        physical_offsets=framed.positions + base,
        store_timestamp=1_700_000_000_123,
        store_host=host_bytes(store_host),
    )
    assert buffer.tobytes() == expected.buffer


@pytest.mark.parametrize("count", [3, 100])
def test_a_record_without_room_for_the_host_is_refused_untouched(count: int) -> None:
    log = log_of([{"topic": "T", "body": b"b", "store_host": IPV6}] * count)
    buffer = np.frombuffer(bytearray(log.buffer), np.uint8)
    with pytest.raises(FormatError, match="record 0 at 0 has no room"):
        patch_stored_fields(
            buffer,
            log.positions,
            queue_offsets=log.positions,
            physical_offsets=log.positions,
            store_timestamp=5,
            store_host=host_bytes(IPV4),
        )
    assert buffer.tobytes() == log.buffer


def test_a_host_of_another_size_is_refused() -> None:
    nothing = np.empty(0, np.int64)
    with pytest.raises(FormatError, match="8 or 20 bytes"):
        patch_stored_fields(
            np.empty(0, np.uint8),
            nothing,
            queue_offsets=nothing,
            physical_offsets=nothing,
            store_timestamp=0,
            store_host=b"1.2.3.4:5",
        )

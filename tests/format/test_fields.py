"""Many records decoded at once give what record.py gives for each."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.columns.fields import Properties, bodies, bytes_under, properties
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.record.properties import decode_properties
from tandemlog.format.record.record import encode_record
from tandemlog.format.record.sys_flag import ZLIB, with_compression

TEXTS = st.lists(
    st.sampled_from([b"K\x01v\x02", b"K\x01w\x02", b"L\x01\xc3\xa9\x02", b"", b"K", b"\x01v\x02",
                     b"K\x01\x02", b"K\x01v\x01w\x02", b"\x02", b"\x01", b"K\x01\xff\x02"]),
    max_size=4,
).map(b"".join)  # fmt: skip


@given(st.lists(TEXTS, min_size=1, max_size=5), st.integers(1, 6))
def test_properties_are_those_of_each_text(texts: list[bytes], times: int) -> None:
    texts = [text for text in texts for _ in range(times)]
    found = Properties(texts)
    expected = [decode_properties(text) for text in texts]
    assert found.rows() == expected
    assert found.column("K") == [each.get("K") for each in expected]
    assert found.column("none") == [None] * len(texts)


def test_alike_texts_are_split_as_one() -> None:
    found = Properties([b"A\x01%d\x02B\x01b\x02" % number for number in range(3)])
    assert found.columns == {"A": ["0", "1", "2"], "B": ["b"] * 3}
    first, second, _ = found.rows()
    first["B"] = "changed"
    assert second == {"A": "1", "B": "b"}, "each record has a dict of its own"


def test_names_that_shift_from_record_to_record_are_not_mistaken() -> None:
    texts = [b"A\x011\x02B\x012\x02A\x013\x02", b"B\x014\x02"]
    found = Properties(texts)
    assert found.rows() == [{"A": "3", "B": "2"}, {"B": "4"}]


def test_bodies_are_sliced_and_checked() -> None:
    records = [
        encode_record(topic="t", body=b"x" * number, properties={"N": str(number + 1)})
        for number in range(6)
    ]
    records[2] = encode_record(topic="t", body=b"zz", sys_flag=with_compression(0, ZLIB))
    damaged = bytearray(records[4])
    damaged[88] ^= 1
    records[4] = bytes(damaged)
    records[5] = records[5][:3] + b"\x7f" + records[5][4:]
    sizes = np.array([len(record) for record in records])
    view = memoryview(b"in front" + b"".join(records))[8:]
    headers = gather_headers(view, np.cumsum(sizes) - sizes, sizes)
    data, base = bytes_under(view)
    assert (data is view.obj, base) == (True, 8)
    assert bodies(data, base, headers, slice(0, 6)) == [b"", b"x", None, b"xxx", None, None]
    assert bodies(data, base, headers, slice(3, 4)) == [b"xxx"]
    assert properties(data, base, headers, slice(0, 2)).columns == {"N": ["1", "2"]}


def test_what_is_no_view_of_bytes_is_copied() -> None:
    assert bytes_under(b"abc") == (b"abc", 0)
    assert bytes_under(memoryview(bytearray(b"abc"))[1:]) == (b"bc", 0)
    assert bytes_under(memoryview(b"abc")[3:]) == (b"", 0)

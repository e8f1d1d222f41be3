"""Records are found among other bytes by their magic and their own offset."""

from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.columns.record_starts import (
    HEAD_SIZE,
    magic_positions,
    starts_in_place,
    stored_offset,
)
from tandemlog.format.constants import MAGIC_V1, MAGIC_V2
from tandemlog.format.record.record import encode_record

V1, V2 = MAGIC_V1.to_bytes(4), MAGIC_V2.to_bytes(4)


@given(st.lists(st.sampled_from([b"\0", b"\xda", b"\xda\xa3", V1, V2, b"xyz"]), max_size=40))
def test_magics_are_found_wherever_they_stand(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    expected = [at - 4 for at in range(4, len(data) - 3) if data[at : at + 4] in (V1, V2)]
    assert list(magic_positions(data)) == expected


def test_a_record_elsewhere_is_no_start() -> None:
    right = encode_record(topic="T", body=b"a", physical_offset=1000 + 5)
    wrong = encode_record(topic="T", body=b"b", physical_offset=7)
    data = b"\1\2\3\4\5" + right + wrong
    assert list(starts_in_place(data, 1000)) == [5]
    assert stored_offset(data, 5 + len(right)) == 7


def test_a_start_that_is_cut_off_is_not_looked_at() -> None:
    record = encode_record(topic="T", body=b"a", physical_offset=0)
    assert stored_offset(record[: HEAD_SIZE - 1], 0) is None
    assert list(starts_in_place(record[: HEAD_SIZE - 1], 0)) == []
    assert list(starts_in_place(record[:HEAD_SIZE], 0)) == [0]

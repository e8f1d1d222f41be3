"""A table is what its pieces were cut from, and a peer cannot make the receiver hold more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.ha.protocol.table_pieces import MAX_KINDS, Assembly, Piece, cut_up


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.integers(1, 60))
def test_tables_come_back_whatever_the_order_of_their_kinds(tables: list[bytes], size: int) -> None:
    assembly = Assembly()
    rows = [cut_up(str(kind), 7, data, size) for kind, data in enumerate(tables)]
    found: dict[str, bytes] = {}
    for step in range(max(map(len, rows))):
        for row in rows:
            if step < len(row) and (whole := assembly.add(row[step])) is not None:
                found[row[step].kind] = whole
    assert [found[str(kind)] for kind in range(len(tables))] == tables


def test_more_than_may_be_under_way_is_refused_by_name() -> None:
    assembly = Assembly(max_bytes=10)
    assembly.add(Piece("topics", 1, 0, False, b"123456"))
    with pytest.raises(ProtocolError, match=r"'groups'.*10 bytes"):
        assembly.add(Piece("groups", 1, 0, True, b"12345"))
    assert assembly.add(Piece("topics", 1, 1, True, b"7890")) == b"1234567890"
    assert assembly.add(Piece("groups", 1, 0, True, b"1234567890")) == b"1234567890"


@pytest.mark.parametrize(
    "second",
    [
        Piece("t", 1, 0, True, b"x"),
        Piece("t", 1, 2, True, b"x"),
        Piece("t", 2, 1, True, b"x"),
        Piece("u", 1, 1, True, b"x"),
    ],
)
def test_a_piece_out_of_turn_ends_the_stream(second: Piece) -> None:
    assembly = Assembly()
    assembly.add(Piece("t", 1, 0, False, b"x"))
    with pytest.raises(ProtocolError, match="out of order"):
        assembly.add(second)


def test_empty_pieces_and_endless_kinds_hold_nothing() -> None:
    assembly = Assembly()
    with pytest.raises(ProtocolError, match="empty"):
        assembly.add(Piece("t", 1, 0, False, b""))
    for kind in range(MAX_KINDS):
        assembly.add(Piece(str(kind), 1, 0, False, b"x"))
    with pytest.raises(ProtocolError, match="at a time"):
        assembly.add(Piece("one more", 1, 0, False, b"x"))


def test_a_table_too_large_to_be_sent_is_not_cut_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemlog_server.ha.protocol.table_pieces.MAX_TABLE_BYTES", 3)
    with pytest.raises(ValueError, match="4 bytes, the limit is 3"):
        cut_up("topics", 1, b"1234")

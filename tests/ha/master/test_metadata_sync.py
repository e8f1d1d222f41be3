"""Tables travel in pieces, once for every version, and never hold up the log."""

import pytest

from fakes.clock import FakeClock
from fakes.fake_store import FakeDisk, FakeStore
from tandemlog_server.ha.master.metadata_sync import (
    MetadataSource,
    TableCursor,
)
from tandemlog_server.ha.protocol import table_pieces
from tandemlog_server.ha.protocol.frames import decode_master_frame
from tandemlog_server.ha.protocol.table_pieces import PIECE_BYTES, Assembly, Piece
from tandemlog_server.ha.store_port import (
    CONSUMER_OFFSETS,
    GROUP_MEMBERS,
    GROUPS,
    LOG_IDENTITY,
    TOPICS,
    tables_of,
)


def pieces(cursor: TableCursor) -> list[Piece]:
    found = []
    while (frame := cursor.frame()) is not None:
        piece = decode_master_frame(frame)
        assert isinstance(piece, Piece)
        found.append(piece)
    return found


def test_a_new_slave_gets_all_tables_and_then_what_changes() -> None:
    store = FakeStore(FakeDisk())
    source = MetadataSource(tables_of(store), FakeClock())
    assert source.refresh()
    first = TableCursor(source)
    assert [piece.kind for piece in pieces(first)] == [
        TOPICS,
        GROUPS,
        CONSUMER_OFFSETS,
        GROUP_MEMBERS,
        LOG_IDENTITY,
    ]
    assert first.frame() is None
    store.groups.change(b'{"g": 1}')
    assert first.frame() is None
    assert source.refresh()
    assert pieces(first) == [Piece(GROUPS, 1, 0, True, b'{"g": 1}')]
    assert not source.refresh()
    assert len(pieces(TableCursor(source))) == 5
    assert source.versions() == {
        TOPICS: 0,
        GROUPS: 1,
        CONSUMER_OFFSETS: 0,
        GROUP_MEMBERS: 0,
        LOG_IDENTITY: 0,
    }


def test_a_change_while_a_table_is_read_is_sent_again() -> None:
    class Changing:
        version = 0

        def to_json(self) -> bytes:
            self.version += 1
            return b"half"

        def replace_from_json(self, data: bytes) -> None:
            raise AssertionError

    table = Changing()
    source = MetadataSource({"topics": table}, FakeClock())
    source.refresh()
    table.version = 1
    assert source.refresh()


def test_a_table_that_is_under_way_is_sent_to_its_end() -> None:
    store = FakeStore(FakeDisk())
    source = MetadataSource({TOPICS: store.topics}, FakeClock())
    store.topics.change(b"a" * (PIECE_BYTES + 1))
    source.refresh()
    cursor, assembly = TableCursor(source), Assembly()
    first = decode_master_frame(cursor.frame() or b"")
    store.topics.change(b"b")
    source.refresh()
    found = [assembly.add(piece) for piece in [first, *pieces(cursor)] if isinstance(piece, Piece)]
    assert found == [None, b"a" * (PIECE_BYTES + 1), b"b"]


def test_a_table_that_is_too_large_stays_here_and_the_others_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_pieces, "MAX_TABLE_BYTES", 10)
    store = FakeStore(FakeDisk())
    store.topics.change(b"a" * 11)
    source = MetadataSource(tables_of(store), FakeClock())
    source.refresh()
    source.refresh()
    assert [piece.kind for piece in pieces(TableCursor(source))] == [
        GROUPS,
        CONSUMER_OFFSETS,
        GROUP_MEMBERS,
        LOG_IDENTITY,
    ]
    assert "11 bytes" in source.faults[TOPICS]
    assert len(caplog.records) == 1
    store.topics.change(b"{}")
    source.refresh()
    assert not source.faults


class Slow:
    """A table whose encoding takes a second."""

    def __init__(self, clock: FakeClock) -> None:
        self.version = 0
        self.encoded = 0
        self._clock = clock

    def to_json(self) -> bytes:
        self._clock.advance(1.0)
        self.encoded += 1
        return b"{}"

    def replace_from_json(self, data: bytes) -> None:
        raise AssertionError


def test_a_table_that_takes_long_is_encoded_rarely() -> None:
    clock = FakeClock()
    table = Slow(clock)
    source = MetadataSource({"offsets": table}, clock)
    for _ in range(100):
        source.refresh()
        table.version += 1
        clock.advance(0.3)
    assert 2 <= table.encoded <= 4


def test_one_that_somebody_waits_for_is_encoded_soon_and_half_of_the_time_at_most() -> None:
    clock = FakeClock()
    table, other = Slow(clock), Slow(clock)
    source = MetadataSource({TOPICS: table, CONSUMER_OFFSETS: other}, clock)
    source.refresh()
    table.version = other.version = 1
    clock.advance(1.0)
    assert source.refresh({TOPICS})
    assert source.versions() == {TOPICS: 1, CONSUMER_OFFSETS: 0}, "nobody waits for the other"
    began, encoded = clock.monotonic(), table.encoded
    while clock.monotonic() < began + 100:
        table.version += 1
        source.refresh({TOPICS})
        clock.advance(0.05)
    assert 45 <= table.encoded - encoded <= 50


def test_one_that_is_too_large_is_not_encoded_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_pieces, "MAX_TABLE_BYTES", 1)
    clock = FakeClock()
    table = Slow(clock)
    source = MetadataSource({TOPICS: table}, clock)
    for _ in range(100):
        source.refresh()
        clock.advance(0.3)
    assert table.encoded <= 4


def test_a_table_that_can_be_sent_at_last_comes_while_another_slave_looks_for_news() -> None:
    """The thread that encodes adds it, the event loop looks."""
    store = FakeStore(FakeDisk())
    tables = dict(tables_of(store))
    late = tables.pop(LOG_IDENTITY)
    source = MetadataSource(tables, FakeClock())
    source.refresh()

    class Sent(dict[str, int]):
        """Everything but the new table was sent."""

        def get(self, kind: str, default: object = None) -> int:
            tables[LOG_IDENTITY] = late
            source.refresh()
            return source.versions()[kind]

    source.newer(Sent())
    assert LOG_IDENTITY in source.versions()

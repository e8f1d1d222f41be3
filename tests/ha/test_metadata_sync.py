"""Tables travel whole, once for every version."""

from fakes.fake_store import FakeDisk, FakeStore
from ha.frames import Metadata, decode_master_frame
from ha.metadata_sync import CONSUMER_OFFSETS, GROUPS, TOPICS, MetadataSource, tables_of


def kinds(frames: list[bytes]) -> list[str]:
    found = [decode_master_frame(frame) for frame in frames]
    assert all(isinstance(each, Metadata) for each in found)
    return [each.kind for each in found if isinstance(each, Metadata)]


def test_a_new_slave_gets_all_tables_and_then_what_changes() -> None:
    store = FakeStore(FakeDisk())
    source = MetadataSource(tables_of(store))
    assert source.refresh()
    first: dict[str, int] = {}
    assert kinds(source.unsent(first)) == [TOPICS, GROUPS, CONSUMER_OFFSETS]
    assert source.unsent(first) == []
    store.groups.change(b'{"g": 1}')
    assert source.unsent(first) == []
    assert source.refresh()
    (frame,) = source.unsent(first)
    assert decode_master_frame(frame) == Metadata(GROUPS, b'{"g": 1}', 1)
    assert not source.refresh()
    assert len(source.unsent({})) == 3


def test_a_change_while_a_table_is_read_is_sent_again() -> None:
    class Changing:
        version = 0

        def to_json(self) -> bytes:
            self.version += 1
            return b"half"

        def replace_from_json(self, data: bytes) -> None:
            raise AssertionError

    table = Changing()
    source = MetadataSource({"topics": table})
    source.refresh()
    table.version = 1
    assert source.refresh()

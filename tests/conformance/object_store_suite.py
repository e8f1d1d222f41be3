"""What every object store of an archive must do: a folder, fsspec's, and the one in memory.

A test class inherits `ObjectStoreSuite` and gives it the fixture `store`: an empty one.
"""

import threading

import pytest

from tandemlog.archive.errors import ArchiveDamagedError, ObjectMissingError
from tandemlog.archive.object_store import ObjectStore

ONE = "log/0-1"
TWO = "log/0-2"


class ObjectStoreSuite:
    """See the module."""

    def test_what_is_put_is_read(self, store: ObjectStore) -> None:
        content = bytes(range(256)) * 5_000
        assert store.put(ONE, content)
        assert store.get(ONE) == content

    @pytest.mark.parametrize("content", [b"", b"x", memoryview(b"viewed")])
    def test_any_content_is_kept(self, store: ObjectStore, content: bytes | memoryview) -> None:
        store.put(ONE, content)
        assert store.get(ONE) == bytes(content)

    def test_an_object_that_is_there_is_found_and_kept(self, store: ObjectStore) -> None:
        assert store.put(ONE, b"first")
        assert not store.put(ONE, b"first")
        assert store.get(ONE) == b"first"
        assert len(store.list("log/")) == 1

    def test_an_object_of_another_size_is_not_replaced(self, store: ObjectStore) -> None:
        store.put(ONE, b"first")
        with pytest.raises(ArchiveDamagedError, match="5 bytes"):
            store.put(ONE, b"longer than that")
        assert store.get(ONE) == b"first"

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            (0, None, b"0123456789"),
            (3, None, b"3456789"),
            (0, 4, b"0123"),
            (3, 7, b"3456"),
            (3, 3, b""),
            (7, 3, b""),
            (8, 100, b"89"),
            (10, 20, b""),
            (50, 60, b""),
        ],
    )
    def test_a_range_is_read(
        self, store: ObjectStore, start: int, end: int | None, expected: bytes
    ) -> None:
        store.put(ONE, b"0123456789")
        assert store.get(ONE, start, end) == expected

    def test_a_missing_object_is_said_to_be_missing(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectMissingError, match="0-1"):
            store.get(ONE)
        store.put(TWO, b"another")
        with pytest.raises(ObjectMissingError, match="0-1"):
            store.get(ONE, 2, 5)

    def test_the_objects_of_a_prefix_are_listed_by_name(self, store: ObjectStore) -> None:
        assert store.list("log/") == []
        store.put(TWO, b"two")
        store.put(ONE, b"the first")
        store.put("index/0-1", b"of another prefix")
        found = store.list("log/")
        assert [(each.key, each.size) for each in found] == [(ONE, 9), (TWO, 3)]
        assert all(each.modified_ms >= 0 for each in found)
        assert store.list("state/") == []

    def test_what_is_deleted_is_gone_and_can_come_back(self, store: ObjectStore) -> None:
        store.put(ONE, b"once")
        store.put(TWO, b"stays")
        store.delete(ONE)
        store.delete(ONE)
        assert [each.key for each in store.list("log/")] == [TWO]
        with pytest.raises(ObjectMissingError):
            store.get(ONE)
        assert store.put(ONE, b"once")
        assert store.get(ONE) == b"once"

    @pytest.mark.parametrize(
        "key", ["", "log", "log/", "/log/0", "../0", "log/../0", "log/a/b", "log/\n", "LOG/0"]
    )
    def test_no_key_leads_elsewhere(self, store: ObjectStore, key: str) -> None:
        for call in (store.get, store.delete, lambda each: store.put(each, b"")):
            with pytest.raises(ValueError, match="no name of an object"):
                call(key)

    def test_several_threads_put_the_same(self, store: ObjectStore) -> None:
        content = b"the same" * 10_000
        failures: list[Exception] = []

        def put() -> None:
            try:
                store.put(ONE, content)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=put) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not failures
        assert store.get(ONE) == content
        assert [each.key for each in store.list("log/")] == [ONE]

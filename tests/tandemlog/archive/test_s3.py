"""An archive in an object store that speaks S3, as a user of one sets it up."""

import logging
import random
import threading
from collections.abc import Iterator

import pytest

from conformance.object_store_suite import ONE, TWO, ObjectStoreSuite
from helpers.s3_server import BUCKET, SECRET, S3Server, Trouble, s3_server
from tandemlog.archive.errors import ArchiveUnavailableError
from tandemlog.archive.fsspec_store import FsspecStore
from tandemlog.archive.object_store import ObjectStore
from tandemlog.archive.open_store import open_object_store

pytestmark = pytest.mark.s3

URL = f"s3://{BUCKET}/archive"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(monkeypatch) as running:
        yield running


@pytest.fixture
def store(server: S3Server) -> ObjectStore:
    return open_object_store(URL)


class TestS3(ObjectStoreSuite):
    @pytest.fixture
    def store(self, store: ObjectStore) -> ObjectStore:
        return store


def test_every_page_of_a_list_is_read(store: ObjectStore, server: S3Server) -> None:
    keys = [f"log/{number}" for number in range(10)]
    for key in keys:
        store.put(key, b"content")
    server.requests.clear()
    assert [each.key for each in store.list("log/")] == keys
    assert len([method for method, _ in server.requests if method == "GET"]) > 3


def test_a_race_of_two_writers_has_one_object(store: ObjectStore, server: S3Server) -> None:
    """Both have looked, and found nothing; then both write."""
    both_looked = threading.Barrier(2)
    answers: list[bool] = []

    stores = (store, open_object_store(URL))
    for each in stores:
        assert isinstance(each, FsspecStore)
        size = each._size

        def looked(path: str, size: object = size) -> int | None:
            found = size(path)  # type: ignore[operator]
            both_looked.wait(30)
            return found  # type: ignore[no-any-return]

        each._size = looked  # type: ignore[method-assign]
    writers = [
        threading.Thread(target=lambda mine=mine: answers.append(mine.put(ONE, b"content")))
        for mine in stores
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert answers == [True, True]
    assert open_object_store(URL).get(ONE) == b"content"


@pytest.mark.parametrize("trouble", ["refused", "denied"])
def test_a_store_that_refuses_is_named(
    store: ObjectStore, server: S3Server, trouble: Trouble
) -> None:
    store.put(TWO, b"content")
    server.trouble = lambda method, path: trouble
    for call in (
        lambda: store.put(ONE, b"content"),
        lambda: store.get(TWO),
        lambda: store.list("log/"),
        lambda: store.delete(TWO),
    ):
        with pytest.raises(ArchiveUnavailableError, match=rf"{URL}: ") as refused:
            call()
        assert SECRET not in str(refused.value)
    server.trouble = lambda method, path: "pass"
    assert store.get(TWO) == b"content"
    assert [each.key for each in store.list("log/")] == [TWO]


def test_a_short_refusal_is_waited_for(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")
    store = open_object_store(URL)
    left = [2]

    def busy(method: str, path: str) -> Trouble:
        left[0] -= 1
        return "refused" if left[0] >= 0 else "pass"

    server.trouble = busy
    assert store.put(ONE, b"content")
    assert left[0] < 0
    assert store.get(ONE) == b"content"


def test_an_answer_that_was_lost_is_no_second_object(store: ObjectStore, server: S3Server) -> None:
    server.trouble = lambda method, path: "lost" if method == "PUT" else "pass"
    with pytest.raises(ArchiveUnavailableError, match="write log/0-1"):
        store.put(ONE, b"content")
    assert not store.put(ONE, b"content")
    assert store.get(ONE) == b"content"


def test_a_put_that_comes_late_comes_back_after_a_delete(
    store: ObjectStore, server: S3Server
) -> None:
    server.trouble = lambda method, path: "repeated" if method == "PUT" else "pass"
    assert store.put(ONE, b"content")
    store.delete(ONE)
    assert store.list("log/") == []
    server.settle()
    assert store.get(ONE) == b"content"


def test_a_bucket_that_is_not_there_is_named(server: S3Server) -> None:
    elsewhere = open_object_store("s3://another/archive")
    with pytest.raises(ArchiveUnavailableError, match=r"s3://another/archive.*not exist"):
        elsewhere.put(ONE, b"content")


def test_a_server_that_is_not_there_is_named(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ArchiveUnavailableError, match=r"127\.0\.0\.1:1"):
        open_object_store(URL).get(ONE)


def test_no_credentials_are_logged(server: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    """At the level at which everything else about requests is said."""
    caplog.set_level(logging.INFO)
    store = open_object_store(URL)
    store.put(ONE, b"content")
    store.get(ONE)
    server.trouble = lambda method, path: "denied"
    with pytest.raises(ArchiveUnavailableError):
        store.list("log/")
    assert SECRET not in caplog.text
    assert SECRET not in repr(store)


def test_on_a_bad_day_trying_again_is_enough(store: ObjectStore, server: S3Server) -> None:
    chance = random.Random(7)
    troubles: list[Trouble] = ["lost", "late", "repeated"]

    def bad(method: str, path: str) -> Trouble:
        if method == "PUT" and chance.random() < 0.3:
            return chance.choice(troubles)
        return "pass"

    server.trouble = bad
    contents = {f"log/{number}": b"%d" % number * 100 for number in range(30)}
    for key, content in contents.items():
        while True:
            try:
                store.put(key, content)
                break
            except ArchiveUnavailableError:
                continue
    server.settle()
    assert {each.key: store.get(each.key) for each in store.list("log/")} == contents

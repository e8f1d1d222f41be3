import asyncio
import concurrent.futures
import threading
from typing import Any

import pytest

from tandemlog.errors import NotMasterError
from tandemlog.produce.futures import AsyncGroup, SyncGroup


class Answer:
    """Stands for a PutAnswer: a result only keeps it."""


def place(result: object) -> int:
    return result._index  # type: ignore[attr-defined,no-any-return]


def test_all_futures_of_a_request_are_answered_at_once() -> None:
    group = SyncGroup()
    futures = [group.add(index) for index in range(3)]
    assert not any(future.done() for future in futures)
    group.acknowledged(Answer())  # type: ignore[arg-type]
    assert [place(future.result()) for future in futures] == [0, 1, 2]
    assert all(future.done() and future.exception() is None for future in futures)


def test_a_failed_request_fails_all() -> None:
    group = SyncGroup()
    futures = [group.add(index) for index in range(2)]
    group.failed(NotMasterError("no"))
    for future in futures:
        assert isinstance(future.exception(), NotMasterError)
        with pytest.raises(NotMasterError):
            future.result()


def test_a_message_that_fails_alone_leaves_the_others_their_places() -> None:
    group = SyncGroup()
    futures = [group.add(index) for index in range(4)]
    rest = group.without([0, 2, 3], [1], NotMasterError("first"))
    rest = rest.without([0, 2], [1], NotMasterError("second"))
    assert [future.done() for future in futures] == [False, True, True, False]
    rest.acknowledged(Answer())  # type: ignore[arg-type]
    assert place(futures[0].result()) == 0
    assert place(futures[3].result()) == 1
    assert str(futures[1].exception()) == "first"
    assert str(futures[2].exception()) == "second"


def test_waiting_with_a_time_limit() -> None:
    future = SyncGroup().add(0)
    with pytest.raises(TimeoutError):
        future.result(0)
    with pytest.raises(TimeoutError):
        future.exception(0.001)


def test_a_thread_that_waits_wakes_up() -> None:
    group = SyncGroup()
    first, second = group.add(0), group.add(1)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(place(second.result(10))))
    thread.start()
    group.without([1], [0], NotMasterError("x")).acknowledged(Answer())  # type: ignore[arg-type]
    thread.join(10)
    assert seen == [0]
    assert first.done()


def test_callbacks_wait_and_as_completed_work_as_on_any_future() -> None:
    group = SyncGroup()
    futures: list[concurrent.futures.Future[Any]] = [group.add(index) for index in range(3)]
    called: list[int] = []
    futures[1].add_done_callback(lambda future: called.append(place(future.result())))
    done, pending = concurrent.futures.wait(futures, 0)
    assert (len(done), len(pending)) == (0, 3)
    waiter = threading.Timer(0, lambda: group.acknowledged(Answer()))  # type: ignore[arg-type]
    waiter.start()
    assert set(concurrent.futures.as_completed(futures, 10)) == set(futures)
    assert concurrent.futures.wait(futures).done == set(futures)
    waiter.join()
    assert called == [1]
    futures[0].add_done_callback(lambda future: called.append(7))
    assert called == [1, 7]


def test_cancelling_stops_the_waiting() -> None:
    group = SyncGroup()
    future, other = group.add(0), group.add(1)
    assert future.cancel()
    assert future.cancelled()
    group.acknowledged(Answer())  # type: ignore[arg-type]
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    assert place(other.result()) == 1
    assert not other.cancel()


async def test_a_future_can_be_awaited() -> None:
    group = SyncGroup()
    future = group.add(0)
    waiting = asyncio.wrap_future(future)
    group.acknowledged(Answer())  # type: ignore[arg-type]
    assert place(await waiting) == 0


async def test_asyncio_futures_of_a_request() -> None:
    group = AsyncGroup(asyncio.get_running_loop())
    futures = [group.add(index) for index in range(3)]
    futures[2].cancel()
    rest = group.without([1, 2], [0], NotMasterError("x"))
    rest.acknowledged(Answer())  # type: ignore[arg-type]
    assert isinstance(futures[0].exception(), NotMasterError)
    assert place(await futures[1]) == 0
    failing = AsyncGroup(asyncio.get_running_loop())
    future = failing.add(0)
    failing.failed(NotMasterError("y"))
    assert isinstance(future.exception(), NotMasterError)

"""No dispatch is slept over, and nobody is woken for somebody else's queue."""

import asyncio
from contextlib import ExitStack

from tandemlog_server.node.pulls.long_polling import UNKNOWN_QUEUE, WAKE_SLICE, LongPolling


async def turn() -> None:
    """Let what was scheduled run."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_dispatch_wakes_who_waits_for_the_queue() -> None:
    polling = LongPolling(asyncio.get_running_loop(), lambda: 3)
    with polling.waiting({1, 2}) as one, polling.waiting({0}) as other:
        polling.on_dispatch([2])
        await turn()
        assert one.is_set()
        assert not other.is_set()


async def test_a_dispatch_without_waiters_schedules_nothing() -> None:
    polling = LongPolling(asyncio.get_running_loop(), lambda: 3)
    polling.on_dispatch([1])
    with polling.waiting({1}) as event:
        await turn()
        assert not event.is_set()


async def test_a_queue_without_a_number_is_woken_when_the_table_grows() -> None:
    count = 3
    polling = LongPolling(asyncio.get_running_loop(), lambda: count)
    with polling.waiting({UNKNOWN_QUEUE}) as event:
        polling.on_dispatch([1])
        await turn()
        assert not event.is_set()
        count = 4
        polling.on_dispatch([3])
        await turn()
        assert event.is_set()


async def test_many_dispatches_are_one_wake_up() -> None:
    loop = asyncio.get_running_loop()
    polling = LongPolling(loop, lambda: 8)
    with polling.waiting({5}) as first, polling.waiting({6}) as second:
        for queue in range(8):
            await asyncio.to_thread(polling.on_dispatch, [queue])
        await turn()
        assert first.is_set()
        assert second.is_set()


async def test_who_stops_waiting_is_forgotten() -> None:
    polling = LongPolling(asyncio.get_running_loop(), lambda: 3)
    with polling.waiting({1}), polling.waiting({1}) as kept:
        pass
    with polling.waiting({1}) as kept:
        with polling.waiting({1}):
            pass
        polling.on_dispatch([1])
        await turn()
        assert kept.is_set()


async def test_one_dispatch_that_wakes_many_does_it_slice_by_slice() -> None:
    polling = LongPolling(asyncio.get_running_loop(), lambda: 3)
    with ExitStack() as stack:
        events = [stack.enter_context(polling.waiting({1})) for _ in range(3 * WAKE_SLICE)]
        polling.on_dispatch([1])
        woken = []
        while not all(event.is_set() for event in events):
            await asyncio.sleep(0)
            woken.append(sum(event.is_set() for event in events))
        assert woken[-3:] == [WAKE_SLICE, 2 * WAKE_SLICE, 3 * WAKE_SLICE]


async def test_many_that_end_in_one_moment_do_it_slice_by_slice() -> None:
    loop = asyncio.get_running_loop()
    polling = LongPolling(loop, lambda: 3)
    deadline = loop.time()
    with ExitStack() as stack:
        events = [
            stack.enter_context(polling.waiting({1}, deadline)) for _ in range(2 * WAKE_SLICE)
        ]
        async with asyncio.timeout(10):
            await events[0].wait()
            assert not events[-1].is_set()
            await events[-1].wait()


async def test_who_waits_for_how_much_is_counted() -> None:
    loop = asyncio.get_running_loop()
    polling = LongPolling(loop, lambda: 3)
    with polling.waiting({1, 2}), polling.waiting({1}, loop.time() + 60):
        assert (polling.waiters, polling.watches, polling.watching) == (2, 3, 2)
    assert (polling.waiters, polling.watches, polling.watching) == (0, 0, 0)

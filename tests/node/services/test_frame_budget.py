"""Frames that have begun have one budget, of which a host has its share."""

import asyncio

import pytest

from tandemlog_server.node.services.frame_budget import FrameBudget


async def test_a_host_waits_for_its_own_and_not_for_others() -> None:
    budget = FrameBudget(100)
    await budget.hold("a", 40)
    await budget.hold("a", 30)
    late = asyncio.ensure_future(budget.hold("a", 20))
    await asyncio.sleep(0)
    assert not late.done()
    await asyncio.wait_for(budget.hold("b", 20), 5)
    assert budget.held_bytes == 90
    budget.give_back("a", 40)
    await asyncio.wait_for(late, 5)
    assert budget.held_bytes == 70


async def test_a_connection_that_ends_while_it_waits_leaves_nothing() -> None:
    budget = FrameBudget(100)
    await budget.hold("a", 75)
    first = asyncio.ensure_future(budget.hold("a", 20))
    second = asyncio.ensure_future(budget.hold("a", 20))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    budget.give_back("a", 75)
    await asyncio.wait_for(second, 5)
    assert budget.held_bytes == 20


async def test_one_whose_turn_comes_as_it_ends_gives_it_back() -> None:
    budget = FrameBudget(100)
    await budget.hold("a", 75)
    waiting = asyncio.ensure_future(budget.hold("a", 20))
    await asyncio.sleep(0)
    budget.give_back("a", 75)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.held_bytes == 0


async def test_one_frame_that_is_larger_than_all_is_still_received() -> None:
    budget = FrameBudget(10)
    await asyncio.wait_for(budget.hold("a", 32), 5)
    assert not budget.has_room("a", 1)

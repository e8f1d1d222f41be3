"""How much an unclean term began without: kept once it is known, and never smaller than it was."""

import logging

import pytest

from fakes.election import KEYS, SyncCoordinator
from fakes.fake_coordinator import CoordinatorWorld, Fault
from tandemlog_server.ha.election.key_values import NOT_KNOWN, TermValue
from tandemlog_server.ha.election.losses import Losses
from tandemlog_server.ha.master.master_group import Return


class Bench:
    """A history of two terms; the second one is unclean."""

    def __init__(self) -> None:
        self.world = CoordinatorWorld()
        self.keys = SyncCoordinator(self.world)
        self.client = self.world.client()
        self.losses = Losses(self.client, KEYS)
        self.keys.put(KEYS.term(1), TermValue(1, "a", "first start", 1))
        self.keys.put(KEYS.term(2), TermValue(2, "b", "forced", 2, unclean=True))

    def lost(self) -> list[int]:
        return [term.lost_bytes for term in self.keys.snapshot().history]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_the_size_stands_in_the_history(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    assert bench.lost() == [NOT_KNOWN, NOT_KNOWN]
    bench.losses.note(Return(2, "a", 80))
    with caplog.at_level(logging.WARNING):
        await bench.losses.write()
    assert bench.lost() == [NOT_KNOWN, 80]
    assert "a, which led epoch 1, is back: epoch 2 began without 80 bytes" in caplog.text


async def test_nothing_lost_is_known_too(bench: Bench) -> None:
    bench.losses.note(Return(2, "a", 0))
    await bench.losses.write()
    assert bench.lost() == [NOT_KNOWN, 0]


@pytest.mark.parametrize("sizes", [(0, 80), (80, 0), (80, 80)])
async def test_the_larger_size_stays(bench: Bench, sizes: tuple[int, int]) -> None:
    for size in sizes:
        bench.losses.note(Return(2, "a", size))
        await bench.losses.write()
    assert bench.lost() == [NOT_KNOWN, 80]


async def test_a_clean_term_and_one_of_long_ago_have_no_size(bench: Bench) -> None:
    bench.losses.note(Return(1, "a", 80))
    bench.losses.note(Return(9, "a", 80))
    before = bench.keys.snapshot().revision
    await bench.losses.write()
    assert bench.keys.snapshot().revision == before


@pytest.mark.parametrize("fault", [Fault.UNREACHABLE, Fault.LOST_ANSWER])
async def test_what_the_coordinator_has_not_taken_is_tried_again(
    bench: Bench, fault: Fault
) -> None:
    bench.losses.note(Return(2, "a", 80))
    bench.client.faults.extend([fault, fault])
    await bench.losses.write()
    bench.client.faults.clear()
    await bench.losses.write()
    assert bench.lost() == [NOT_KNOWN, 80]

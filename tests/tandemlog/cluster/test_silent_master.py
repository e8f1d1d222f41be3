"""Which calls of a silent master are left, and when."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tandemlog.cluster import silent_master
from tandemlog.cluster.silent_master import SilentMaster
from tandemlog.cluster.topology import Topology
from tandemlog.errors import NodeUnavailableError, NoMasterError

NODE: Any = SimpleNamespace(endpoint="h0:1")


class Nodes:
    """n0 at h0:1, which answers or not; `leads` is who answers as the master of epoch 2."""

    def __init__(self, *, alive: bool, leads: str = "") -> None:
        self.alive, self.leads = alive, leads
        self.questions = self.rounds = 0
        self.looked = asyncio.Event()
        self.away = False

    async def responds(self, node: Any, timeout_s: float) -> bool:
        assert node is NODE
        self.questions += 1
        if self.questions >= 3:
            self.looked.set()
        return self.alive

    async def refresh(self) -> Topology:
        self.rounds += 1
        if self.away:
            raise NoMasterError("nobody answers")
        found: Any = SimpleNamespace(authority=None)
        if self.leads:
            place = f"h{self.leads[1:]}:1"
            found.authority = SimpleNamespace(node_id=self.leads, endpoint=place, epoch=2)
        topology: Topology = found
        return topology


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_master, "SILENCE_S", 0.0)
    monkeypatch.setattr(silent_master, "LOOK_S", 0.0)


async def wait_for(answer: "asyncio.Future[str]", watch: SilentMaster) -> str:
    async with asyncio.timeout(10), watch.watched(NODE, "n0"):
        return await answer


async def test_a_call_of_a_silent_master_ends_when_another_one_leads() -> None:
    nodes = Nodes(alive=False, leads="n1")
    watch, answer = SilentMaster(nodes), asyncio.Future[str]()
    with pytest.raises(NodeUnavailableError, match=r"n0 \(h0:1\) is silent, and n1 \(h1:1\) is"):
        await wait_for(answer, watch)
    assert answer.cancelled()
    await watch.close()


@pytest.mark.parametrize(
    ("nodes", "rounds"),
    [
        (Nodes(alive=True, leads="n1"), False),  # it answers: a long poll
        (Nodes(alive=False), True),  # nobody leads yet
        (Nodes(alive=False, leads="n0"), True),  # under another endpoint
    ],
)
async def test_a_call_waits_on(nodes: Nodes, rounds: bool) -> None:
    watch, answer = SilentMaster(nodes), asyncio.Future[str]()
    waiting = asyncio.create_task(wait_for(answer, watch))
    await asyncio.wait_for(nodes.looked.wait(), 10)
    answer.set_result("late")
    assert await waiting == "late"
    assert (nodes.rounds > 0) == rounds
    asked = nodes.questions
    await asyncio.sleep(0.01)
    assert nodes.questions <= asked + 1, "nothing is asked for calls that are over"
    await watch.close()


async def test_a_round_that_fails_is_repeated() -> None:
    nodes = Nodes(alive=False, leads="n1")
    nodes.away = True
    watch = SilentMaster(nodes)
    waiting = asyncio.create_task(wait_for(asyncio.Future[str](), watch))
    await asyncio.wait_for(nodes.looked.wait(), 10)
    assert not waiting.done()
    nodes.away = False
    with pytest.raises(NodeUnavailableError):
        await waiting
    await watch.close()


async def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    watch = SilentMaster(Nodes(alive=True))
    waiting = asyncio.create_task(wait_for(asyncio.Future[str](), watch))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await watch.close()

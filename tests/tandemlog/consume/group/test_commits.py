"""Commits: what `commit` has returned for is on the server, whatever was cancelled in between."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tandemlog import errors
from tandemlog.consume.group.commits import Commits
from tandemlog.consume.progress import Progress
from tandemlog.consume.reading.positions import Queue
from tandemlog.consume.statistics import ConsumerCounters

ZERO, ONE = ("orders", 0), ("orders", 1)


class Server:
    """What `Positions.commit` is to Commits. Each row is written after some turns of the loop, and
    the answer takes some more; a call that is cancelled in between has written a part, or all."""

    def __init__(self, turns: int = 3) -> None:
        self.offsets: dict[Queue, int] = {}
        self.turns = turns
        self.calls = 0
        self.failures: list[Exception] = []

    async def commit(
        self,
        group: str,
        offsets: Mapping[Queue, int],
        member: tuple[str, int] | None = None,
        log_term: tuple[int, int] = (0, 0),
    ) -> None:
        self.calls += 1
        for queue, offset in offsets.items():
            await self._wait()
            self.offsets[queue] = offset
        await self._wait()
        if self.failures:
            raise self.failures.pop()

    async def _wait(self) -> None:
        for _ in range(self.turns):
            await asyncio.sleep(0)


class Of:
    """The stream: no membership, and nobody who wants to hear of failures."""

    def __init__(self) -> None:
        self.membership = None
        self.counters = ConsumerCounters()
        self.log = self
        self.log_term = (0, 0)

    async def catch_up(self) -> None:
        """It has no log."""

    def commit_failed(self, error: errors.TandemlogError, offsets: dict[Queue, int]) -> None:
        """Nobody."""


def commits_of(server: Any, progress: Progress, stream: Any) -> Commits:
    return Commits(server, progress, "g", stream)


def commits_at(server: Server, *queues: Queue) -> tuple[Commits, Progress]:
    progress = Progress()
    for queue in queues:
        progress.restart(queue, 0)
    return commits_of(server, progress, Of()), progress


def deliver(progress: Progress, queue: Queue, offset: int) -> None:
    behind = progress.progress_of(queue, progress.turn(queue))
    behind.delivered = behind.done = offset


@pytest.mark.parametrize("cancelled_after", range(20))
async def test_a_cancelled_commit_is_sent_again(cancelled_after: int) -> None:
    server = Server()
    commits, progress = commits_at(server, ZERO, ONE)
    for queue in (ZERO, ONE):
        deliver(progress, queue, 7)
    first = asyncio.create_task(commits.commit())
    for _ in range(cancelled_after):
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await commits.commit()
    assert server.offsets == {ZERO: 7, ONE: 7}


async def test_a_commit_out_of_time_is_sent_again() -> None:
    server = Server(turns=1_000_000_000)
    commits, progress = commits_at(server, ZERO)
    deliver(progress, ZERO, 7)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await commits.commit()
    server.turns = 0
    await commits.commit()
    assert server.offsets == {ZERO: 7}


async def test_a_cancelled_commit_of_less_may_have_moved_the_group_back() -> None:
    server = Server()
    commits, progress = commits_at(server, ZERO)
    deliver(progress, ZERO, 7)
    await commits.commit()
    back = asyncio.create_task(commits.commit({ZERO: 2}))
    for _ in range(6):
        await asyncio.sleep(0)
    assert server.offsets == {ZERO: 2}
    assert not back.done()
    back.cancel()
    await asyncio.gather(back, return_exceptions=True)
    await commits.commit()
    assert server.offsets == {ZERO: 7}


async def test_of_a_commit_that_failed_it_is_not_known_what_it_wrote() -> None:
    server = Server(turns=0)
    commits, progress = commits_at(server, ZERO)
    deliver(progress, ZERO, 7)
    await commits.commit()
    server.failures.append(errors.NodeUnavailableError("no answer"))
    with pytest.raises(errors.NodeUnavailableError):
        await commits.commit({ZERO: 2})
    await commits.commit()
    assert server.offsets == {ZERO: 7}


async def test_what_the_group_has_is_not_sent_again() -> None:
    server = Server(turns=0)
    commits, progress = commits_at(server, ZERO)
    deliver(progress, ZERO, 7)
    await commits.commit()
    calls = server.calls
    await commits.save(progress.done)
    assert server.offsets == {ZERO: 7}
    assert server.calls == calls


@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_was_committed_by_hand_is_done(is_lost: bool) -> None:
    server = Server(turns=0)
    commits, progress = commits_at(server, ZERO)
    behind = progress.progress_of(ZERO, progress.turn(ZERO))
    behind.delivered, behind.done = 7, 6
    if is_lost:
        commits.lost(progress.forget([ZERO]), {}, ("former", 1))
    await commits.commit()
    await commits.save(progress.done)
    await commits.save_lost()
    assert server.offsets == {ZERO: 7}
    assert behind.done == 7
    behind.delivered = 9
    assert behind.done == 7, "the caller has the next ones in its hands"


async def test_an_offset_by_hand_beyond_what_was_delivered_makes_nothing_done() -> None:
    commits, progress = commits_at(Server(turns=0), ZERO)
    await commits.commit({ZERO: 30})
    assert progress.done == {ZERO: 0}


class CutLog(Of):
    """A stream whose log was cut: it hears of that when it compares its positions; `meanwhile`
    happens to the queue before."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self.log_term = (1, 11)
        self._meanwhile = meanwhile

    async def catch_up(self) -> None:
        self._meanwhile()
        self.log_term = (2, 22)


class AfterTheCut(Server):
    """It takes offsets of its own log alone."""

    async def commit(
        self,
        group: str,
        offsets: Mapping[Queue, int],
        member: tuple[str, int] | None = None,
        log_term: tuple[int, int] = (0, 0),
    ) -> None:
        if log_term != (2, 22):
            error = errors.LogCutError("these messages are not in the log")
            error.refused = tuple(offsets)
            raise error
        await super().commit(group, offsets, member, log_term)


@pytest.mark.parametrize("meanwhile", ["lost", "lost and begun again"])
async def test_a_place_in_a_queue_that_is_lost_is_none_in_another_log(meanwhile: str) -> None:
    """Nothing compares it: sent as a place in the log of now, it would skip what is there."""
    server, progress = AfterTheCut(turns=0), Progress()

    def happens() -> None:
        progress.forget([ZERO])
        if meanwhile != "lost":
            progress.restart(ZERO, 3)

    commits = commits_of(server, progress, CutLog(happens))
    for queue in (ZERO, ONE):
        progress.restart(queue, 0)
        deliver(progress, queue, 7)
    await commits.save(progress.done)
    assert server.offsets == {ONE: 7}


async def test_a_commit_by_name_in_a_queue_that_is_lost_says_so() -> None:
    server, progress = AfterTheCut(turns=0), Progress()
    commits = commits_of(server, progress, CutLog(lambda: progress.forget([ZERO])))
    progress.restart(ZERO, 0)
    deliver(progress, ZERO, 7)
    with pytest.raises(errors.LogCutError):
        await commits.commit({ZERO: 7})
    assert server.offsets == {}


@pytest.mark.parametrize("seed", range(60))
async def test_whatever_is_cancelled_a_commit_that_returned_is_there(seed: int) -> None:
    """Several callers deliver, seek, commit and are cancelled at any moment."""
    chance = random.Random(seed)
    server = Server(turns=chance.randrange(4))
    commits, progress = commits_at(server, ZERO, ONE)
    asked: dict[asyncio.Task[None], dict[Queue, int]] = {}
    for _ in range(80):
        queue = chance.choice((ZERO, ONE))
        step = chance.random()
        if step < 0.3:
            deliver(progress, queue, progress.position(queue) + chance.randrange(3))
        elif step < 0.4:
            progress.restart(queue, chance.randrange(20))
        elif step < 0.6:
            asked[asyncio.create_task(commits.commit())] = progress.delivered
        elif step < 0.7:
            asked[commits.commit_soon({queue: chance.randrange(20)})] = {}
        elif asked:
            chance.choice(list(asked)).cancel()
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        if chance.random() < 0.1:
            await asyncio.gather(*asked, return_exceptions=True)
            wanted = progress.delivered
            await commits.commit()
            assert {q: server.offsets[q] for q in wanted} == wanted
    await asyncio.gather(*asked, return_exceptions=True)
    await commits.commit()
    assert server.offsets == {**server.offsets, **progress.delivered}


class Epochs:
    """The newest epoch that the connection has heard of."""

    def __init__(self) -> None:
        self.value = 1


def commits_in(epochs: Epochs, server: Server) -> tuple[Commits, Progress]:
    progress = Progress(lambda: epochs.value)
    progress.restart(ZERO, 0)
    progress.note_committed({ZERO: 0}, epochs.value)
    return Commits(server, progress, "g", Of()), progress  # type: ignore[arg-type]


async def test_what_an_earlier_master_had_is_sent_to_the_next_one() -> None:
    server, epochs = Server(turns=0), Epochs()
    commits, progress = commits_in(epochs, server)
    deliver(progress, ZERO, 7)
    await commits.save(progress.done)
    server.offsets, epochs.value = {ZERO: 2}, 2  # the next one does not have the last commit
    await commits.save(progress.done)
    assert server.offsets == {ZERO: 7}
    calls = server.calls
    await commits.save(progress.done)
    assert server.calls == calls


async def test_an_answer_that_may_be_of_the_master_before_is_not_believed_of_the_next() -> None:
    server, epochs = Server(turns=3), Epochs()
    commits, progress = commits_in(epochs, server)
    deliver(progress, ZERO, 7)
    saving = asyncio.create_task(commits.save(progress.done))
    await asyncio.sleep(0)
    epochs.value = 2
    await saving
    calls = server.calls
    await commits.save(progress.done)
    assert server.calls == calls + 1


def test_where_a_group_was_before_an_election_is_not_where_it_is() -> None:
    epochs = Epochs()
    progress = Progress(lambda: epochs.value)
    progress.restart(ZERO, 0)
    asked_in = progress.epoch
    epochs.value = 2
    progress.note_committed({ZERO: 0}, asked_in)
    assert progress.to_commit({ZERO: 0}) == {ZERO: 0}

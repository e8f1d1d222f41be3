"""Offsets that come with pulls are committed together, in their order, and no pull waits."""

import asyncio
from typing import Any, cast

import pytest

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.remoting.reads import group_commits
from tandemlog_server.node.remoting.reads.group_commits import GroupCommits

Offsets = dict[tuple[str, int], int]


class Members:
    """A group service whose writes end when the test says so; an offset that is there moves on."""

    def __init__(self) -> None:
        self.offsets: Offsets = {}
        self.commits: list[Offsets] = []
        self.refuses: set[tuple[str, int]] = set()
        self.may_end = asyncio.Semaphore(0)

    def move_forward(self, group: str, topic: str, queue_id: int, offset: int, _: Caller) -> bool:
        if self.offsets.get((topic, queue_id), offset + 1) > offset:
            return False
        self.offsets[topic, queue_id] = offset
        return True

    async def commit(
        self, request: broker_pb2.CommitOffsetsRequest, _: Caller, *, of_clients: bool
    ) -> broker_pb2.CommitOffsetsResponse:
        assert of_clients
        rows = {(each.topic, each.queue_id): each.queue_offset for each in request.offsets}
        self.commits.append(rows)
        await self.may_end.acquire()
        self.offsets.update(rows)
        response = broker_pb2.CommitOffsetsResponse()
        response.error.MergeFrom(common_pb2.Error(message="a member reads it"))
        response.refused.extend(
            each for each in request.offsets if (each.topic, each.queue_id) in self.refuses
        )
        return response


class Known:
    def check_queue(self, topic: str, queue_id: int) -> None:
        if queue_id > 900:
            raise RequestRefusedError(common_pb2.UNKNOWN_QUEUE, f"{topic} has no queue {queue_id}")


class Turns:
    def release(self, _: Caller) -> None: ...


CALLER = Caller("10.0.0.9:1")


@pytest.fixture
async def members() -> Members:
    return Members()


@pytest.fixture
async def commits(members: Members) -> GroupCommits:
    return GroupCommits(cast("Any", members), cast("Any", Known()), cast("Any", Turns()))


async def turns(number: int = 8) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_new_group_of_many_queues_begins_in_two_writes(
    members: Members, commits: GroupCommits
) -> None:
    for queue in range(512):
        commits.commit_unheard("g", "t", queue, 32, CALLER)
        if queue == 0:
            await turns()  # the first is being written
    await turns()
    assert [len(rows) for rows in members.commits] == [1]
    members.may_end.release()
    await turns()
    assert [len(rows) for rows in members.commits] == [1, 511]
    members.may_end.release()
    await turns()
    assert members.offsets == {("t", queue): 32 for queue in range(512)}


async def test_a_later_offset_does_not_overtake_the_one_on_its_way(
    members: Members, commits: GroupCommits
) -> None:
    commits.commit_unheard("g", "t", 0, 32, CALLER)
    await turns()
    members.offsets["t", 0] = 0  # the write has begun: by now the queue could be moved on
    commits.commit_unheard("g", "t", 0, 64, CALLER)
    commits.commit_unheard("g", "t", 0, 96, CALLER)
    for _ in range(2):
        members.may_end.release()
        await turns()
    assert members.commits == [{("t", 0): 32}, {("t", 0): 96}]
    assert members.offsets == {("t", 0): 96}
    commits.commit_unheard("g", "t", 0, 128, CALLER)
    assert members.offsets == {("t", 0): 128}


async def test_a_request_that_is_answered_waits_for_its_own_rows(
    members: Members, commits: GroupCommits
) -> None:
    commits.commit_unheard("g", "t", 0, 32, CALLER)
    await turns()
    heard = asyncio.create_task(commits.commit("g", "t", 1, 7, CALLER))
    members.may_end.release()
    await turns()
    assert not heard.done()
    members.may_end.release()
    await heard
    assert members.offsets["t", 1] == 7


@pytest.mark.parametrize(
    ("queue_id", "offset", "reason"),
    [(901, 5, "has no queue 901"), (0, -3, "must not be negative"), (1, 5, "a member reads it")],
)
async def test_what_is_refused_is_said_once_and_fails_no_pull(
    queue_id: int,
    offset: int,
    reason: str,
    members: Members,
    commits: GroupCommits,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", group_commits.__name__)
    members.refuses.add(("t", 1))
    members.may_end.release()
    commits.commit_unheard("g", "t", queue_id, offset, CALLER)
    await turns()
    assert reason in caplog.text
    assert caplog.text.count("is not committed") == 1


async def test_commits_that_nobody_waits_for_are_bounded(
    members: Members, commits: GroupCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commits, "MOST_UNHEARD", 2)
    for number, group in enumerate("ab"):
        assert commits.commit_unheard(group, "t", number, 1, CALLER)
    assert not commits.commit_unheard("c", "t", 2, 1, CALLER)
    assert commits.commit_unheard("c", "t", 4, 1, Caller("10.0.0.8:1"))  # of another connection
    assert commits.commit_unheard("a", "t", 3, 1, CALLER)  # with one that is in line
    for _ in range(4):
        members.may_end.release()
        await turns()
    assert members.offsets == {("t", number): 1 for number in (0, 1, 3, 4)}
    assert commits.commit_unheard("c", "t", 2, 1, CALLER)
    members.may_end.release()
    await turns()
    assert members.offsets["t", 2] == 1


async def test_what_is_in_a_full_commit_is_not_overtaken(
    members: Members, commits: GroupCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commits, "MOST_ROWS", 1)
    commits.commit_unheard("g", "t", 0, 3, CALLER)
    await turns()  # it is being written
    members.offsets["t", 1] = 5
    commits.commit_unheard("g", "t", 1, 2, CALLER)  # a step back: the next commit, which is full
    commits.commit_unheard("g", "t", 2, 3, CALLER)
    commits.commit_unheard("g", "t", 1, 7, CALLER)
    for _ in range(4):
        members.may_end.release()
        await turns()
    assert members.offsets == {("t", 0): 3, ("t", 1): 7, ("t", 2): 3}


async def test_who_asks_for_an_offset_waits_for_those_on_their_way(
    members: Members, commits: GroupCommits
) -> None:
    commits.commit_unheard("g", "t", 0, 32, CALLER)
    await turns()
    commits.commit_unheard("g", "t", 1, 7, CALLER)  # behind the one that is being written
    asks = [asyncio.create_task(commits.settled("g", ("t", queue))) for queue in range(3)]
    await turns()
    assert [each.done() for each in asks] == [False, False, True]
    for _ in range(2):
        members.may_end.release()
        await turns()
    assert all(each.done() for each in asks)
    assert members.offsets == {("t", 0): 32, ("t", 1): 7}

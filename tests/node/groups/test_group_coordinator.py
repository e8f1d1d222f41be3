"""The coordinator of a node: callers that go away in the middle, and what a heartbeat costs."""

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.groups import group_coordinator as coordinators
from tandemlog_server.node.groups.assignor import assign
from tandemlog_server.node.groups.consumer_group import ConsumerGroup, Report
from tandemlog_server.node.groups.consumer_group import Member as CoreMember
from tandemlog_server.node.groups.group_refusals import check_room
from tandemlog_server.node.groups.heartbeats import report_of
from tandemlog_server.node.settings.sections import GroupsSection

from .test_group_coordinator_members import Cluster, Member, cluster, converge

__all__ = ["cluster"]


async def test_a_caller_that_goes_away_leaves_no_queue_without_an_owner(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Member(cluster, "one")
    await converge(one)
    begun, go_on = threading.Event(), threading.Event()

    def slow(*work: Any) -> Any:
        begun.set()
        assert go_on.wait(10)
        return assign(*work)

    monkeypatch.setattr(coordinators, "IN_LOOP", 0)
    monkeypatch.setattr(coordinators, "assign", slow)
    two = Member(cluster, "two")
    joining = asyncio.ensure_future(two.report())
    assert await asyncio.to_thread(begun.wait, 10)
    joining.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await joining
    go_on.set()
    two.epoch = 0
    group = cluster.node.groups.groups["g"]
    async with asyncio.timeout(5):
        while not group.targets.get("two"):  # noqa: ASYNC110 - it is the look, not the test, that waits
            await asyncio.sleep(0.02)


async def test_an_older_target_does_not_come_after_a_newer_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Member(cluster, "one")
    await converge(one)
    began: list[int] = []
    begun, first = threading.Event(), threading.Event()

    def slow(subscriptions: Any, *work: Any) -> Any:
        began.append(len(subscriptions))
        begun.set()
        if len(began) == 1:
            first.wait(1)  # the thread that began first ends last
        return assign(subscriptions, *work)

    monkeypatch.setattr(coordinators, "IN_LOOP", 0)
    monkeypatch.setattr(coordinators, "assign", slow)
    two, three = Member(cluster, "two"), Member(cluster, "three")
    joining = asyncio.ensure_future(two.report())
    assert await asyncio.to_thread(begun.wait, 10)
    late = asyncio.ensure_future(three.report())
    await asyncio.sleep(0.1)
    first.set()
    await asyncio.gather(joining, late)
    await converge(one, two, three)
    owned = [each.owned.get("orders", []) for each in (one, two, three)]
    assert sorted(queue for each in owned for queue in each) == [0, 1, 2, 3]
    assert all(owned)


def test_a_heartbeat_without_news_looks_at_no_other_member() -> None:
    group = ConsumerGroup("g")
    for index in range(3):
        report = Report(f"m{index}", 0, 1, frozenset({"orders"}))
        group.join(report, 0.0)
    group.set_topics({"orders": 9})
    group.set_target(assign(*group.assignment_work()))
    assert group.reconcile(0.0)
    member = group.members["m0"]
    member.owned = Untouched(member.owned)
    group.members["m1"].owned = None  # type: ignore[assignment]
    assert not group.reconcile(1.0, member)


async def test_a_commit_of_a_term_that_is_over_is_not_taken(cluster: Cluster) -> None:
    one = Member(cluster, "one")
    await converge(one)
    groups = cluster.node.groups
    committed: list[int] = []
    groups.lead("commit on", "g")
    groups._forget()  # the role changes while the commit waits for its turn
    with pytest.raises(RequestRefusedError) as by_hand:
        groups.commit_by_hand("g", [("orders", 0)], committed.append, empty=False)
    with pytest.raises(RequestRefusedError) as owned:
        groups.commit_owned("g", "one", one.epoch, [("orders", 0)], committed.append)
    # no word that the member is fenced: the master may know it
    assert [by_hand.value.code, owned.value.code] == [common_pb2.NOT_IN_SYNC] * 2
    assert not committed


async def test_a_deleted_group_does_not_come_back(cluster: Cluster) -> None:
    one = Member(cluster, "one")
    await converge(one)
    one.epoch = -1
    await one.report()
    groups = cluster.node.groups
    groups._saver.forget()
    await groups.delete("g")
    groups._forget()
    groups.lead("describe", "g")
    assert "g" not in groups.groups
    with pytest.raises(RequestRefusedError) as unknown:
        groups.describe("g")
    assert unknown.value.code == common_pb2.UNKNOWN_GROUP


async def test_a_group_is_deleted_once_all_its_tables_are_safe(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that is made again would else continue where the deleted one was."""
    one = Member(cluster, "one")
    await converge(one)
    one.epoch = -1
    await one.report()
    groups = cluster.node.groups
    confirmed: list[str] = []

    async def confirm(table: str) -> None:
        confirmed.append(table)

    monkeypatch.setattr(groups._current.role, "confirm_table", confirm)
    await groups.delete("g")
    assert {"groups", "group-members", "consumer-offsets"} <= {*confirmed}


@pytest.mark.parametrize("field", ["member_id", "instance_id", "client_id"])
def test_ids_cannot_forge_lines_of_the_log(field: str) -> None:
    request = broker_pb2.GroupHeartbeatRequest(
        group="g", member_id="m", session_timeout_ms=10_000, rebalance_timeout_ms=1
    )
    setattr(request, field, "m\n2026-01-01 INFO all is well")
    with pytest.raises(RequestRefusedError, match="printable"):
        report_of(request, "", GroupsSection())


def _group(name: str, count: int, holder: str = "", host: str = "") -> ConsumerGroup:
    group = ConsumerGroup(name)
    for number in range(count):
        member = CoreMember(f"{name}-{number}", frozenset({"t"}), host=host, holder=holder)
        group.members[member.member_id] = member
    return group


def test_one_caller_leaves_room_for_members_of_others() -> None:
    """Groups are many, so the bound of one does not keep a caller from filling all."""
    limits = GroupsSection(members=100, members_per_group=60)
    new, groups = (
        ConsumerGroup("new"),
        {"a": _group("a", 50, "greedy"), "b": _group("b", 24, "greedy")},
    )
    check_room(groups, new, limits, "greedy")
    groups["c"] = _group("c", 1, "greedy")
    with pytest.raises(RequestRefusedError, match=r"'greedy' has 75 members .* is 75") as refused:
        check_room(groups, new, limits, "greedy")
    assert (refused.value.code, refused.value.limit) == (common_pb2.BUSY, 75)
    check_room(groups, new, limits, "another")
    groups["d"] = _group("d", 25, "another")
    with pytest.raises(RequestRefusedError, match="have 100 members"):
        check_room(groups, new, limits, "a third")


def test_members_of_another_masters_term_count_for_their_hosts_until_they_report() -> None:
    limits = GroupsSection(members=100, members_per_group=100)
    groups = {"a": _group("a", 80, host="ipv4:10.0.0.7:4000")}
    check_room(groups, ConsumerGroup("new"), limits, "orders")
    with pytest.raises(RequestRefusedError, match=r"'ipv4:10.0.0.7' has 80 members"):
        check_room(groups, ConsumerGroup("new"), limits, "ipv4:10.0.0.7")


async def test_a_member_counts_for_who_reports_it(cluster: Cluster) -> None:
    one = Member(cluster, "one")
    await one.report()
    [member] = cluster.node.groups.groups["g"].members.values()
    assert member.holder in ("ipv4:127.0.0.1", "ipv6:%5B::1%5D")


def test_what_a_report_may_hold_is_bounded() -> None:
    request = broker_pb2.GroupHeartbeatRequest(
        group="g", member_id="m", session_timeout_ms=10_000, topics=["t" * 256]
    )
    with pytest.raises(RequestRefusedError, match="topic"):
        report_of(request, "", GroupsSection())
    request.topics[:] = ["t"]
    request.owned.add(topic="t", queue_ids=range(131_073))
    with pytest.raises(RequestRefusedError, match="131073"):
        report_of(request, "", GroupsSection())


async def test_a_write_that_was_not_allowed_is_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = cluster.node.store.group_members
    update = members.update
    refused: list[Any] = []

    def once(rows: Any, now_ms: int, allowed: Any) -> bool:
        if not refused:
            refused.append(rows)
            return update(rows, now_ms, lambda: False)  # the lease was in doubt just then
        return update(rows, now_ms, allowed)

    monkeypatch.setattr(members, "update", once)
    one = Member(cluster, "one")
    response = await one.report(0)
    assert refused
    assert (response.error.code, one.owned) == (0, {"orders": [0, 1, 2, 3]})


class Untouched(dict[Any, int]):
    """Queues at which nobody may look."""

    def __iter__(self) -> Any:
        raise AssertionError("a heartbeat without news looks at each queue")

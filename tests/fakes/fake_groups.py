"""The members of groups as a master keeps them, in memory: docs/decisions/0036 without its clock.

heartbeat ─▶ FakeGroup ─▶ assigned: target, without what another member still owns
expire(member)             its session timed out
silent = True              heartbeats are heard, and not responded to
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fakes.fake_log import FakeLog, RefusedError
from tandemlog.v1 import broker_pb2, common_pb2

Queue = tuple[str, int]


@dataclass
class Member:
    member_id: str
    instance_id: str
    client_id: str
    topics: tuple[str, ...]
    epoch: int
    session_timeout_ms: int
    owned: set[Queue] = field(default_factory=set)
    number: int = 0
    told: tuple[int, frozenset[Queue], bool] | None = None


@dataclass
class FakeGroup:
    log: FakeLog
    epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[Queue, str] = field(default_factory=dict)
    owners: dict[Queue, tuple[str, int]] = field(default_factory=dict)
    left: dict[Queue, tuple[str, int]] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)

    def rebalance(self) -> None:
        """Balanced by topic, and each queue stays where the balance allows it."""
        self.epoch += 1
        before, self.target = self.target, {}
        topics = sorted({topic for member in self.members.values() for topic in member.topics})
        for topic in topics:
            takers = [m.member_id for m in self.members.values() if topic in m.topics]
            count = self.log.topics[topic].read_queues if topic in self.log.topics else 0
            most = -(-count // len(takers))
            load = dict.fromkeys(takers, 0)
            free = []
            for queue in ((topic, number) for number in range(count)):
                holder = before.get(queue)
                if holder in load and load[holder] < most:
                    load[holder] += 1
                    self.target[queue] = holder
                else:
                    free.append(queue)
            for queue in free:
                taker = min(takers, key=lambda each: load[each])
                load[taker] += 1
                self.target[queue] = taker

    def remove(self, member_id: str) -> None:
        self.members.pop(member_id, None)
        self.left |= {q: owner for q, owner in self.owners.items() if owner[0] == member_id}
        self.owners = {q: owner for q, owner in self.owners.items() if owner[0] != member_id}
        self.rebalance()

    def assign(self, member: Member) -> tuple[int, frozenset[Queue], bool]:
        """Epoch, queues and whether they are the whole target; grants what is free."""
        target = {queue for queue, to in self.target.items() if to == member.member_id}
        kept = {q for q, owner in self.owners.items() if owner[0] == member.member_id} & target
        free = {queue for queue in target if queue not in self.owners}
        if not member.owned - target:
            member.epoch = self.epoch
        for queue in free:
            self.owners[queue] = (member.member_id, self.epoch)
            self.left.pop(queue, None)
        assigned = frozenset(kept | free)
        return member.epoch, assigned, assigned == target


class FakeGroups:
    """All groups of a cluster."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.groups: dict[str, FakeGroup] = {}
        self.silent = False
        self.refusal: RefusedError | None = None
        self.interval_ms = 50
        self.heartbeats: list[broker_pb2.GroupHeartbeatRequest] = []
        self.refused_commits: list[tuple[str, Queue, int]] = []
        self._changed = asyncio.Event()

    def group(self, name: str) -> FakeGroup:
        return self.groups.setdefault(name, FakeGroup(self.log))

    def changed(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    def expire(self, name: str, member_id: str) -> None:
        self.group(name).remove(member_id)
        self.changed()

    def rebalance(self) -> None:
        for group in self.groups.values():
            group.rebalance()
        self.changed()

    async def heartbeat(
        self, request: broker_pb2.GroupHeartbeatRequest, still_master: Callable[[], None]
    ) -> broker_pb2.GroupHeartbeatResponse:
        """Raises RefusedError, also where `still_master` does while it waits."""
        self.heartbeats.append(request)
        while self.silent:
            await self._changed.wait()
        if self.refusal is not None:
            raise self.refusal
        still_master()
        group = self.group(request.group)
        member = self._member(group, request)
        if member is None:
            return broker_pb2.GroupHeartbeatResponse(member_epoch=request.member_epoch)
        self._reported(group, member, request)
        state = group.assign(member)
        try:
            async with asyncio.timeout(min(request.wait_ms, self.interval_ms) / 1000):
                while state == member.told or self.silent:
                    await self._changed.wait()
                    still_master()
                    if request.member_id in group.replaced:
                        raise RefusedError(common_pb2.FENCED_INSTANCE, "another process took over")
                    if request.member_id not in group.members:
                        raise RefusedError(common_pb2.FENCED_MEMBER, "the session timed out")
                    if request.number < member.number:
                        break  # a newer one waits
                    state = group.assign(member)
        except TimeoutError:
            pass
        member.told = state
        return broker_pb2.GroupHeartbeatResponse(
            member_epoch=state[0],
            group_epoch=group.epoch,
            assigned=rows(state[1]),
            heartbeat_interval_ms=self.interval_ms,
            settled=state[2],
        )

    def _member(self, group: FakeGroup, request: broker_pb2.GroupHeartbeatRequest) -> Member | None:
        member = group.members.get(request.member_id)
        if request.member_id in group.replaced:
            raise RefusedError(common_pb2.FENCED_INSTANCE, "another process took over")
        if request.member_epoch == -1:
            group.remove(request.member_id)
            self.changed()
            return None
        if request.member_epoch == -2:
            return None
        if request.member_epoch == 0 and member is None:
            return self._join(group, request)
        if member is None or request.member_epoch > member.epoch:
            raise RefusedError(common_pb2.FENCED_MEMBER, "the master does not know this member")
        return member

    def _join(self, group: FakeGroup, request: broker_pb2.GroupHeartbeatRequest) -> Member:
        member = Member(
            request.member_id,
            request.instance_id,
            request.client_id,
            tuple(request.topics),
            0,
            request.session_timeout_ms,
        )
        twin = next(
            (
                m
                for m in group.members.values()
                if m.instance_id and m.instance_id == member.instance_id
            ),
            None,
        )
        group.members[member.member_id] = member
        if twin is None:
            group.rebalance()
        else:
            group.replaced.add(twin.member_id)
            del group.members[twin.member_id]
            old, new = twin.member_id, member.member_id
            group.target = {q: new if to == old else to for q, to in group.target.items()}
            group.owners = {
                q: (new, group.epoch) if to[0] == old else to for q, to in group.owners.items()
            }
        self.changed()
        return member

    def _reported(
        self, group: FakeGroup, member: Member, request: broker_pb2.GroupHeartbeatRequest
    ) -> None:
        if request.number <= member.number:
            return
        member.number = request.number
        member.owned = {(row.topic, each) for row in request.owned for each in row.queue_ids}
        if set(request.topics) != set(member.topics):
            member.topics = tuple(request.topics)
            group.rebalance()
            self.changed()
        told = member.told[1] if member.told else frozenset()
        for queue, owner in list(group.owners.items()):
            given_up = queue not in member.owned and group.target.get(queue) != member.member_id
            if owner[0] == member.member_id and given_up and queue not in told:
                del group.owners[queue]
                self.changed()

    def commit(self, request: broker_pb2.CommitOffsetsRequest) -> broker_pb2.CommitOffsetsResponse:
        """Raises RefusedError for what is refused as a whole."""
        group = self.group(request.group)
        if request.without_members and group.members:
            raise RefusedError(
                common_pb2.GROUP_HAS_MEMBERS,
                f"group {request.group} has {len(group.members)} members",
            )
        answer = broker_pb2.CommitOffsetsResponse()
        for row in request.offsets:
            owner = group.owners.get((row.topic, row.queue_id))
            if not request.member_id and owner is not None:
                raise RefusedError(common_pb2.GROUP_HAS_MEMBERS, f"{owner[0]} owns it")
            if owner is None and request.member_id:
                owner = group.left.get((row.topic, row.queue_id))
            elif owner is None and not request.dry_run:
                group.left.pop((row.topic, row.queue_id), None)
            mine = (
                owner is not None
                and owner[0] == request.member_id
                and request.member_epoch >= owner[1]
            )
            if request.member_id and not mine:
                self.refused_commits.append(
                    (request.member_id, (row.topic, row.queue_id), row.queue_offset)
                )
                answer.refused.append(row)
            elif not request.dry_run:
                key = request.group, row.topic, row.queue_id
                self.log.committed[key] = row.queue_offset
        if answer.refused:
            answer.error.code = common_pb2.FENCED_MEMBER
            answer.error.message = "the member does not own these queues"
        return answer

    def describe(self, name: str) -> broker_pb2.DescribeGroupResponse:
        group = self.groups.get(name)
        members = group.members.values() if group is not None else ()
        if not members and not any(each == name for each, _, _ in self.log.committed):
            raise RefusedError(common_pb2.UNKNOWN_GROUP, f"group {name} does not exist")
        answer = broker_pb2.DescribeGroupResponse(state="stable" if members else "empty")
        for member in members:
            assert group is not None
            answer.group_epoch = group.epoch
            answer.members.add(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host="127.0.0.1",
                member_epoch=member.epoch,
                topics=member.topics,
                assigned=rows(q for q, to in group.owners.items() if to[0] == member.member_id),
                target=rows(q for q, to in group.target.items() if to == member.member_id),
                session_timeout_ms=member.session_timeout_ms,
            )
        return answer

    def delete(self, name: str, *, dry_run: bool) -> None:
        if self.describe(name).members:
            raise RefusedError(common_pb2.GROUP_HAS_MEMBERS, f"group {name} has members")
        if not dry_run:
            self.groups.pop(name, None)
            for key in [each for each in self.log.committed if each[0] == name]:
                del self.log.committed[key]


def rows(queues: Iterable[Queue]) -> list[broker_pb2.TopicQueues]:
    by_topic: dict[str, list[int]] = {}
    for topic, queue_id in sorted(queues):
        by_topic.setdefault(topic, []).append(queue_id)
    return [broker_pb2.TopicQueues(topic=topic, queue_ids=ids) for topic, ids in by_topic.items()]

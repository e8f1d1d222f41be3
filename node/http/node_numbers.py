"""The numbers of a node at one moment: for /metrics, and for `Admin.stats()`.

    loop     numbers()          positions, members, counters: cheap
    thread   workload()         topics and lags, whose number others decide: workload.py

What the loop owns is copied in the loop. A counter of another thread is read as it is.
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Protocol

from tandemlog.v1 import common_pb2
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.services.delay_desk import DelayDesk

from ..groups.consumer_group import ConsumerGroup
from ..groups.group_coordinator import GroupCoordinator
from ..pulls.group_activity import GroupActivity, GroupNumbers
from ..pulls.pull_service import PullService
from ..pulls.read_turns import ReadTurns
from ..puts.ack_stats import AckStats
from ..roles.elected_roles import ElectionNumbers
from ..services.call_door import CallDoor
from ..services.door_numbers import DoorNumbers
from ..settings.node_config import NodeConfig
from ..transactions.transaction_work import TransactionWork
from ..work.work_numbers import WorkNumbers
from .health import Health
from .workload import Workload, WorkloadNumbers


class Histogram(Protocol):
    """What the store and the node count by size or duration."""

    sum: float

    def cumulative(self) -> Iterable[tuple[float, int]]:
        """(upper bound, how many lie at or below it); the last row has all."""


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """What a scrape of /metrics asks the node for. `alarms` are ids of nodes that may hold what
    this master lacks; `workload` is to be called in a thread."""

    own: common_pb2.NodeStatus
    members: Sequence[common_pb2.NodeStatus]
    can_ack: bool
    min_in_sync: int
    values: Mapping[str, float]
    acks: AckStats
    ack_mode: str
    disk_free_bytes: int
    disk_size_bytes: int = 0
    store_failed: bool = False
    clock_jump_ms: int = 0
    unreadable_files: int = 0
    alarms: Collection[str] = ()
    elections: ElectionNumbers | None = None  # None where roles are configured
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    groups: Mapping[str, GroupNumbers] = field(default_factory=dict)
    folded_groups: int = 0
    calls_total: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    connections: int = 0
    doors: Mapping[str, DoorNumbers] = field(default_factory=dict)
    workload: Callable[[], WorkloadNumbers] = WorkloadNumbers
    certificate_expiry_s: float | None = None  # since 1970; None without TLS


class Observed(Protocol):
    """A node, as its HTTP port sees it. Cheap: both are called in the loop."""

    def health(self) -> Health: ...

    def numbers(self) -> NodeNumbers: ...


class NodeCounters:
    """Reads the counters of a node's parts; see the module."""

    def __init__(
        self,
        config: NodeConfig,
        store: MessageStore,
        *,
        door: CallDoor,
        turns: ReadTurns,
        pulls: PullService,
        groups: GroupActivity,
        coordinator: GroupCoordinator,
        delays: DelayDesk,
        work: Callable[[], WorkNumbers],
        transactions: TransactionWork,
        waiting: Sized,
        acks: AckStats,
        leads: Callable[[], bool],
        scrub: Callable[[], Mapping[str, float]] = dict,
        certificate_expiry_s: Callable[[], float | None] = lambda: None,
        archived: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._config = config
        self._store = store
        self._door = door
        self._turns = turns
        self._pulls = pulls
        self._groups = groups
        self._coordinator = coordinator
        self._delays = delays
        self._work = work
        self._transactions = transactions
        self._waiting = waiting
        self._acks = acks
        self._workload = Workload(
            store,
            max_topics=config.limits.metric_topics,
            max_groups=config.limits.metric_groups,
            leads=leads,
            monotonic=store.clock.monotonic,
        )
        self._scrub = scrub
        self._certificate_expiry_s = certificate_expiry_s
        self._archived = archived

    def statistics(self) -> Mapping[str, float]:
        """Every counter of the store, and how far its parts are behind."""
        store = self._store
        return {
            **store.stats.values(store.clock.monotonic()),
            "flush_behind_bytes": max(0, store.log.wrote.value - store.log.flushed.value),
            "confirm_behind_bytes": max(0, store.log.wrote.value - store.confirmed.value),
            "reput_behind_bytes": max(0, store.confirmed.value - store.reputed.value),
            "puts_waiting": len(self._waiting),
            "calls": self._door.calls,
            "streams": self._door.streams,
            "long_polls": self._pulls.waiting,
            "answer_bytes": self._turns.held_bytes,
            **_group_statistics(self._coordinator),
            **_delay_statistics(self._delays),
            **_work_statistics(self._work()),
            **self._transactions.numbers(),
            **self._scrub(),
            **self._archived(),
        }

    def _group_numbers(self, doors: Iterable[DoorNumbers]) -> Mapping[str, GroupNumbers]:
        """The master knows the members; where a group has none, connections are counted. Each node
        knows the members that are RocketMQ's clients."""
        numbers = self._groups.numbers()
        for counts in (self._coordinator.member_counts(), *(each.members for each in doors)):
            for name, count in counts.items():
                if name in numbers:
                    numbers[name] = replace(numbers[name], members=count)
        return numbers

    def numbers(
        self,
        members: Sequence[common_pb2.NodeStatus],
        *,
        can_ack: bool,
        alarms: Collection[str],
        elections: ElectionNumbers | None,
    ) -> NodeNumbers:
        """For /metrics; `members` has this node too."""
        config, stats = self._config, self._store.stats
        disk = shutil.disk_usage(config.store.directory)
        jump = self._store.clock.jump
        doors = {name: read() for name, read in self._door.rocketmq.items()}
        return NodeNumbers(
            own=next(each for each in members if each.node_id == config.node_id),
            members=members,
            can_ack=can_ack,
            min_in_sync=config.replication.min_in_sync,
            values=self.statistics(),
            acks=self._acks,
            ack_mode=f"{config.store.flush.value}-{config.replication.mode.value}",
            disk_free_bytes=disk.free,
            disk_size_bytes=disk.total,
            store_failed=self._store.failure is not None,
            clock_jump_ms=0 if jump is None else jump.apart_ms,
            unreadable_files=len(self._store.log.unreadable),
            alarms=alarms,
            elections=elections,
            histograms={
                "append_seconds": stats.append_latency,
                "flush_seconds": stats.flush_latency,
                "confirm_seconds": self._acks.confirm_seconds,
                "pull_seconds": self._pulls.latency,
                "message_size_bytes": stats.traffic.record_sizes,
            },
            groups=self._group_numbers(doors.values()),
            folded_groups=self._groups.folded,
            calls_total=self._door.calls_total,
            refused=dict(self._door.refused),
            connections=self._door.keeper.connections,
            doors=doors,
            workload=self._workload.numbers,
            certificate_expiry_s=self._certificate_expiry_s(),
        )


def _group_statistics(groups: GroupCoordinator) -> Mapping[str, float]:
    """By the names of metrics; all of it is 0 on a node that does not lead."""
    present = list(groups.groups.values())
    return {
        "group_rebalances_total": groups.rebalances_total,
        "group_fenced_commits_total": groups.fenced_commits_total,
        "group_members_removed_total": groups.members_removed_total,
        "groups_with_members": sum(bool(group.members) for group in present),
        "groups_reconciling": sum(map(_queues_move, present)),
    }


def _delay_statistics(desk: DelayDesk) -> Mapping[str, float]:
    """By the names of metrics."""
    counts = desk.counts
    return {
        "delayed_messages": desk.waiting,
        "delayed_overdue_seconds": desk.overdue_ms() / 1000,
        "delayed_delivered_total": counts.delivered,
        "delayed_recalled_total": counts.recalled,
        "delayed_set_aside_total": counts.set_aside,
        "delayed_rolled_total": counts.rolled,
    }


def _work_statistics(work: WorkNumbers) -> Mapping[str, float]:
    """By the names of metrics."""
    counts = work.counters
    return {
        "work_unacked": work.unacked,
        "work_leased": work.leased,
        "work_oldest_unacked_seconds": work.oldest_unacked_s,
        "work_receives_waiting": work.waiting,
        "work_delivered_total": counts.delivered,
        "work_redelivered_total": counts.redelivered,
        "work_acknowledged_total": counts.acknowledged,
        "work_retried_total": counts.retried,
        "work_expired_total": counts.expired,
        "work_set_aside_total": counts.set_aside,
        "work_dead_letters_total": counts.dead_letters,
        "work_invalid_handles_total": counts.invalid_handles,
    }


def _queues_move(group: ConsumerGroup) -> bool:
    """Whether queues are on their way: by numbers, which differ until the last one has come."""
    return group.out_of_date or any(
        member.giving_since is not None
        or len(member.owned) != len(group.targets.get(member.member_id, ()))
        for member in group.members.values()
    )

"""What an election needs of the node whose role it decides: the seam between agent and node."""

from dataclasses import dataclass, field
from typing import Protocol

from tandemlog.format.files.epochs import EpochTable

from ..master.record_keeper import RecordKeeper
from ..master.term import WonTerm
from ..state import Member
from .key_values import LeaderValue, MemberValue


@dataclass(frozen=True, slots=True)
class Identity:
    """How others reach this node, which cluster it has belonged to so far (empty: none), and how
    often its store was started, this time included."""

    node_id: str
    endpoint: str
    http_endpoint: str
    store_host: str
    cluster_uuid: str = ""
    starts: int = 0
    rocketmq_endpoint: str = ""
    rocketmq_grpc_endpoint: str = ""


@dataclass(frozen=True, slots=True)
class OwnLog:
    """`obstacle`: why this node must not lead now, empty if it may; `epochs`: the terms of the log;
    `confirm_offset`: up to where it is confirmed, as far as this node knows. The rest as in
    MemberValue."""

    incarnation: str
    accepted_epoch: int
    last_epoch: int
    end_offset: int
    obstacle: str = ""
    epochs: EpochTable = field(default_factory=EpochTable)
    confirm_offset: int = 0


def shown(
    identity: Identity, log: OwnLog, session: str, priority: int, obstacle: str
) -> MemberValue:
    """What a node says of itself at the coordinator."""
    return MemberValue(
        node_id=identity.node_id,
        incarnation=log.incarnation,
        session=session,
        endpoint=identity.endpoint,
        http_endpoint=identity.http_endpoint,
        store_host=identity.store_host,
        accepted_epoch=log.accepted_epoch,
        last_epoch=log.last_epoch,
        end_offset=log.end_offset,
        priority=priority,
        obstacle=obstacle,
        rocketmq_endpoint=identity.rocketmq_endpoint,
        rocketmq_grpc_endpoint=identity.rocketmq_grpc_endpoint,
    )


class RoleHost(Protocol):
    """Changes of the role, one at a time: the agent waits for each. They may block on the disk,
    and raise what the store and the replication raise."""

    def own_log(self) -> OwnLog:
        """Cheap, of no I/O."""
        ...

    async def lead(self, won: WonTerm, keeper: RecordKeeper, cluster_uuid: str) -> None:
        """Stop following, then begin the term; on return puts are accepted. The node belongs to
        `cluster_uuid` from now on, as in `follow`."""
        ...

    async def follow(self, leader: LeaderValue, unclean_epoch: int, cluster_uuid: str) -> None:
        """Follow this leader in place of whatever was before."""
        ...

    async def wait(self, reason: str) -> None:
        """There is no leader."""
        ...

    def say_why(self, reason: str) -> None:
        """Why there is no leader now, for those who ask this node; the role stays."""
        ...

    def fence(self, reason: str) -> None:
        """From the return on nothing is acknowledged under the present term."""
        ...

    def hold_puts(self, reason: str) -> None:
        """Refuse new puts for a moment, with this reason; an empty one accepts them again."""
        ...

    def durable_on(self, member: Member) -> int | None:
        """How far this slave has acknowledged in the present term; None if it is not connected,
        or with another disk."""
        ...

    def log_end(self) -> int:
        """Where the log ends."""
        ...

    def tables_sent(self) -> bool:
        """Whether the slaves have the tables as they were when puts were held back, or are waited
        for no longer."""
        ...

    def puts_under_way(self) -> int:
        """How many puts were accepted and are not appended yet."""
        ...

    def keep_out(self, node_id: str) -> None:
        """Drop this slave from the in-sync set, as soon as enough others are in it, and do not let
        it join; empty: no slave."""
        ...

    async def start_over(self, reason: str, epoch: int) -> None:
        """Stop following and set the log aside: this disk joins as a new one, with an empty log,
        and knows of no epoch above `epoch`. Durable on return; the incarnation is, before the log
        moves."""
        ...

    async def renew_incarnation(self, reason: str, starts: int) -> None:
        """This disk is not what it was: it joins as a new one, which counts this as start `starts`.
        Durable on return; only while there is no role."""
        ...

"""The role of a node that follows a RocketMQ broker: the master of its readers and slaves, without
puts.

    puts, topics                   refused: the broker has them
    groups that the broker knows   refused: their offsets come from the broker
    other groups, reads, slaves    as on a master
"""

from collections.abc import Mapping, Sequence

from tandemlog.format.words import quoted
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.ha.master.node_status import NO_MASTER, READ_ONLY
from tandemlog_server.ha.master.replication_master import ReplicationMaster
from tandemlog_server.rocketmq.follow.follower import BrokerFollower

from ..error_status import RequestRefusedError
from .role import NodeRole

FOLLOWING = "following"


class RelayRole(NodeRole):
    """See the module."""

    def __init__(self, follower: BrokerFollower, replication: ReplicationMaster) -> None:
        self._follower = follower
        self._replication = replication

    def epoch(self) -> int | None:
        return self._replication.epoch

    def leased_epoch(self) -> int | None:
        return self._replication.epoch

    async def leads(self) -> int:
        """The configuration says which node follows the broker."""
        return self._replication.epoch

    def admit(self, durability: int) -> None:
        raise self._refusal("takes no puts: send them to that broker")

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, f"this node follows {self._follower.title}"

    def require_master(self, what: str) -> None:
        return

    def require_topics(self) -> None:
        raise self._refusal("takes its topics from there: change them on that broker")

    def require_group(self, group: str) -> None:
        if group in self._follower.tables.groups:
            raise self._refusal(
                f"takes the offsets of group {quoted(group)} from there: consume with another "
                "group here, or take over from the broker first (tandemlog takeover)"
            )

    async def admit_change(self) -> None:
        return

    async def confirm_table(self, table: str, version: int | None = None) -> None:
        return

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        rows = self._replication.members()
        own, state = rows[0], self._follower.state
        if own.state != READ_ONLY:
            own.state = FOLLOWING if state.following else NO_MASTER
            own.detail = state.fault or f"follows {self._follower.title}"
        if state.broker_end is not None:
            own.lag_bytes = max(0, state.broker_end - own.flushed_offset)
        return rows

    def alarms(self) -> Mapping[str, str]:
        return self._replication.group.alarms

    def put_fault(self) -> str:
        return f"this node follows {self._follower.title} and takes no puts"

    def read_fault(self) -> str:
        return self._follower.state.fault

    def _refusal(self, what: str) -> RequestRefusedError:
        return RequestRefusedError(
            common_pb2.CHANGE_REFUSED, f"this node follows {self._follower.title} and {what}"
        )

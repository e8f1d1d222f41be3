"""What the members of groups may ask of a node."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Numbers of members and topics; times in ms."""

    members_per_group: int = 1_000
    members: int = 10_000
    topics_per_member: int = 1_024
    min_session_timeout_ms: int = 1_000
    max_session_timeout_ms: int = 1_800_000
    max_rebalance_timeout_ms: int = 3_600_000
    heartbeat_interval_ms: int = 3_000
    max_wait_ms: int = 10_000

    def interval_ms(self, session_timeout_ms: int) -> int:
        """How often a member reports: several times in its session."""
        return max(10, min(self.heartbeat_interval_ms, session_timeout_ms // 4))

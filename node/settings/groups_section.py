"""The settings [groups]: what members of consumer groups may ask of a node."""

from pydantic import Field

from .sections import Section


class GroupsSection(Section):
    """The members of consumer groups, on the master. A request outside these limits is refused by
    name."""

    members: int = Field(
        default=10_000,
        ge=1,
        description="Maximum number of members of all groups together. One identity, or one host "
        "without identities, gets three quarters at most, and less the more others have.",
    )
    members_per_group: int = Field(
        default=1_000, ge=1, description="Maximum number of members of one group."
    )
    topics_per_member: int = Field(
        default=1_024, ge=1, description="Maximum number of topics that one member subscribes to."
    )
    min_session_timeout_ms: int = Field(
        default=1_000,
        ge=10,
        description="Shortest session timeout that a member may ask for. A shorter one finds a "
        "dead member sooner, and takes a slow network for one.",
    )
    max_session_timeout_ms: int = Field(
        default=1_800_000,
        ge=1_000,
        description="Longest session timeout that a member may ask for.",
    )
    max_rebalance_timeout_ms: int = Field(
        default=3_600_000,
        ge=1_000,
        description="Longest time that a member may take to give up a queue; a longer one is "
        "shortened to this.",
    )
    heartbeat_interval_ms: int = Field(
        default=3_000,
        ge=10,
        description="Longest time between two reports of a member; a member with a short session "
        "reports four times in it.",
    )

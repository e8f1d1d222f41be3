"""How a node follows a RocketMQ broker."""

from pydantic import Field

from .sections import Section


class FollowingSection(Section):
    """How a node with `follow` asks its broker for what is not in the log."""

    offsets_interval_ms: int = Field(
        default=1_000,
        gt=0,
        description="Time between two requests for the broker's consumer offsets and the end of "
        "its log. It grows with the time that the broker takes to answer.",
    )
    tables_interval_ms: int = Field(
        default=10_000,
        gt=0,
        description="Time between two requests for the broker's topics, groups, delay offsets and "
        "request modes.",
    )

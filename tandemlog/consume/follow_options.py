"""Options for following queues."""

from dataclasses import dataclass

from .positions import EARLIEST, LATEST


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Sizes in bytes, times in ms. `max_bytes` of one response, `prefetch_bytes` ahead of the
    caller, `wait_ms` of one long poll, `auto_commit_ms` between commits (None: the caller commits),
    `on_lost` what to do if messages were deleted before they were read: EARLIEST (what is left),
    LATEST or "error", `patience_ms` how long all allowed nodes may lack the next messages before
    the master alone decides that they are lost, `refresh_ms` between checks for new queues,
    `parallel_pulls` requests at a time, each for some of the queues."""

    max_bytes: int = 8 << 20
    max_messages: int = 0
    prefetch_bytes: int = 32 << 20
    wait_ms: int = 15_000
    auto_commit_ms: int | None = 5_000
    on_lost: str = EARLIEST
    patience_ms: int = 10_000
    refresh_ms: int = 30_000
    parallel_pulls: int = 2

    def __post_init__(self) -> None:
        if self.on_lost not in (EARLIEST, LATEST, "error"):
            raise ValueError(f"on_lost must be earliest, latest or error: {self.on_lost!r}")
        if self.max_bytes <= 0 or self.prefetch_bytes <= 0 or self.wait_ms < 0:
            raise ValueError("max_bytes and prefetch_bytes must be positive, wait_ms not negative")
        if self.parallel_pulls < 1:
            raise ValueError(f"parallel_pulls must be at least 1: {self.parallel_pulls}")
        if self.auto_commit_ms is not None and self.auto_commit_ms <= 0:
            raise ValueError(f"auto_commit_ms must be positive or None: {self.auto_commit_ms}")

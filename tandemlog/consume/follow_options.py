"""Options for following queues."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..hooks import ClientHook, check_hooks
from .reading.positions import EARLIEST, LATEST
from .statistics import ConsumerStatistics


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Sizes in bytes, times in ms. `max_bytes` of one response, `prefetch_bytes` ahead of the
    caller, `wait_ms` of one long poll, `auto_commit_ms` between commits (None: the caller commits),
    `on_data_loss` what to do if messages were deleted before they were read: EARLIEST (what is
    left), LATEST or "error", `patience_ms` how long all allowed nodes may lack the next messages
    before the master alone decides that they are lost, `refresh_ms` between checks for new queues
    and topics, `parallel_pulls` requests at a time while much comes, each for some of the queues.
    `hooks` see each batch before its first message is delivered. `on_statistics` gets a stream's
    ConsumerStatistics every `statistics_interval_ms`, in the client's thread; do not call a client
    in it.

    Of members of a group: `session_timeout_ms` of silence after which the master gives a member's
    queues away, `rebalance_timeout_ms` that it has to give up a queue, `max_poll_interval_ms`
    after which a caller that does not ask for more counts as stuck, so that the member leaves."""

    max_bytes: int = 8 << 20
    max_messages: int = 0
    prefetch_bytes: int = 32 << 20
    wait_ms: int = 15_000
    auto_commit_ms: int | None = 5_000
    on_data_loss: str = EARLIEST
    patience_ms: int = 10_000
    refresh_ms: int = 30_000
    parallel_pulls: int = 2
    session_timeout_ms: int = 20_000
    rebalance_timeout_ms: int = 60_000
    max_poll_interval_ms: int = 300_000
    hooks: Sequence[ClientHook] = ()
    on_statistics: Callable[[ConsumerStatistics], object] | None = None
    statistics_interval_ms: float = 60_000

    def __post_init__(self) -> None:
        check_hooks(self.hooks)
        if self.on_data_loss not in (EARLIEST, LATEST, "error"):
            raise ValueError(
                f"on_data_loss must be earliest, latest or error: {self.on_data_loss!r}"
            )
        for name in (
            "session_timeout_ms",
            "rebalance_timeout_ms",
            "max_poll_interval_ms",
            "statistics_interval_ms",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive: {getattr(self, name)}")
        if self.max_bytes <= 0 or self.prefetch_bytes <= 0 or self.wait_ms < 0:
            raise ValueError("max_bytes and prefetch_bytes must be positive, wait_ms not negative")
        if self.parallel_pulls < 1:
            raise ValueError(f"parallel_pulls must be at least 1: {self.parallel_pulls}")
        if self.auto_commit_ms is not None and self.auto_commit_ms <= 0:
            raise ValueError(f"auto_commit_ms must be positive or None: {self.auto_commit_ms}")

"""How a client reaches its coordinator."""

from dataclasses import dataclass, field

from tandemlog.transport.security import Security

ATTEMPT_S = 0.8
BUDGET_S = 2.0
MIN_KEEPALIVE_S = 10.0
"""etcd ends connections that ping more often (GOAWAY too_many_pings)."""


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """`endpoints` are host:port. Times in seconds.

    `attempt_s` bounds one request to one endpoint, connecting included; `budget_s` all attempts of
    one call. `probe_s` is how often a quiet watch asks whether its endpoint is alive. `security`
    names the files of TLS.
    """

    endpoints: tuple[str, ...]
    attempt_s: float = ATTEMPT_S
    budget_s: float = BUDGET_S
    pause_s: float = 0.05
    probe_s: float = 2.0
    keepalive_s: float = MIN_KEEPALIVE_S
    max_answer_bytes: int = 64 << 20
    security: Security = field(default_factory=Security)
    user: str = ""
    password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("a coordinator needs at least one endpoint, as host:port")
        if len(set(self.endpoints)) != len(self.endpoints):
            raise ValueError(f"an endpoint is given twice: {', '.join(self.endpoints)}")
        if not 0 < self.attempt_s <= self.budget_s:
            raise ValueError(
                f"attempt_s ({self.attempt_s}) must be above 0 and at most budget_s "
                f"({self.budget_s})"
            )
        if self.pause_s <= 0 or self.probe_s <= 0:
            raise ValueError("pause_s and probe_s must be above 0")
        if self.keepalive_s < MIN_KEEPALIVE_S:
            raise ValueError(
                f"keepalive_s must be at least {MIN_KEEPALIVE_S:g}: etcd ends connections that "
                f"ping more often, so {self.keepalive_s:g} is not allowed"
            )
        if bool(self.user) is not bool(self.password):
            raise ValueError("user and password are given both or not at all")

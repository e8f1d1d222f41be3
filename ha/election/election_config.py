"""The settings of elections; read from file and environment in `node` only."""

from dataclasses import dataclass

from ..coordinator.options import BUDGET_S


@dataclass(frozen=True, slots=True)
class ElectionConfig:
    """Times in seconds. `margin_s` is what clocks of nodes may differ in rate over one lease.

    Raises ValueError if a slow coordinator could end a lease that its holder renews in time.
    """

    founders: frozenset[str] = frozenset()
    priority: int = 0
    may_lead: bool = True
    lease_ttl_s: int = 6
    renew_s: float = 1.0
    margin_s: float = 1.0
    budget_s: float = BUDGET_S

    def __post_init__(self) -> None:
        least = self.renew_s + 2 * self.budget_s + self.margin_s
        if self.lease_ttl_s < least:
            raise ValueError(
                f"lease_ttl ({self.lease_ttl_s:g} s) must be at least {least:g} s: one renewal "
                "interval, two tries and the margin"
            )

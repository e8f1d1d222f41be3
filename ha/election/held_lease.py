"""This node's lease: until when it may count on it. Pure.

    t_sent ──────────── ttl ────────────▶ the coordinator ends it, at the earliest
       └─────── deadline ──────┤ margin │
                               └ after this the node does not count on it any more

The time is taken before the renewal is sent, on a clock that runs while the machine sleeps. The
lease protects no acknowledgement that other nodes had a part in: `MasterRole.admit` of the node
(node/roles/master_role.py) says which puts wait for it.
"""

from ..coordinator.values import Lease


class HeldLease:
    """The lease as it was renewed last."""

    def __init__(self, margin_s: float) -> None:
        self.lease: Lease | None = None
        self._margin_s = margin_s
        self._proved_at: float | None = None

    @property
    def lease_id(self) -> int:
        return 0 if self.lease is None else self.lease.lease_id

    def renewed(self, lease: Lease) -> None:
        self.lease = lease

    def proved(self, sent_at: float) -> None:
        """A change sent at `sent_at` compared the leader's key, and was executed."""
        self._proved_at = sent_at

    def lost(self) -> None:
        self.lease, self._proved_at = None, None

    def remaining_s(self, now: float) -> float:
        """How long this node may still count on leading; at most 0: not any more."""
        if self.lease is None or self._proved_at is None:
            return 0.0
        begun = min(self.lease.t_sent, self._proved_at)
        return begun + self.lease.ttl_s - self._margin_s - now

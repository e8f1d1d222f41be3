"""The seam: what a node asks of a coordinator, whichever it is.

A coordinator is a linearizable map with revisions, transactions, leases and watches. Three
implement this protocol and pass one suite (tests/coordinator): etcd and the embedded coordinator
(node/embedded_coordinator), both through etcd_client.py, and a fake in memory.

What may be relied on, and what not:

- Only a transaction that changes something decides. A read may be followed by a change at once,
  and some releases of etcd have given stale reads after a pause of the process.
- A lease is for liveness. A renewed lease does not prove leadership, and a watch is a hint that may
  come late: a caller who needs to know asks.
- Errors are those of coordinator_errors.py. A read is tried at other endpoints until `budget_s` of
  the options is over; a transaction that changes something is sent once.
"""

from collections.abc import AsyncGenerator
from typing import Protocol

from .values import Found, KeyRange, Lease, Listing, Txn, TxnResult, WatchUpdate


class Coordinator(Protocol):
    """See the module. One event loop calls. Every method but `watch` and `close` raises
    CoordinatorUnavailableError."""

    async def get(self, key: bytes) -> Found:
        """The key as it is now (linearizable)."""
        ...

    async def range(self, keys: KeyRange) -> Listing:
        """All keys of a range as they are now (linearizable)."""
        ...

    async def txn(self, txn: Txn) -> TxnResult:
        """Compare and change at once. Raises UnknownOutcomeError too if it may write, and
        LeaseLostError where it puts a key on a lease that does not exist (nothing is changed)."""
        ...

    async def grant_lease(self, ttl_s: int) -> Lease:
        """A new lease. One whose answer was lost expires by itself, with nothing on it."""
        ...

    async def keep_alive(self, lease_id: int) -> Lease:
        """Renew: the lease has its whole time again. Raises LeaseLostError."""
        ...

    async def revoke_lease(self, lease_id: int) -> None:
        """End a lease and delete its keys, at one revision; a lease that does not exist is no
        error. If the coordinator is unavailable, the lease may live on until its time is over."""
        ...

    def watch(self, keys: KeyRange, from_revision: int) -> AsyncGenerator[WatchUpdate, None]:
        """Every change of a range from `from_revision` (at least 1) on, each once, in order.

        It never ends by itself: while no endpoint answers it waits, then continues where it was. It
        ends with `close`, or when the iterator is closed. Raises CoordinatorRefusedError where
        an operator has to act.
        """
        ...

    async def close(self) -> None:
        """End every call and connection; leases live on until they expire."""
        ...

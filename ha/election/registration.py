"""A start is counted in the roster, before the node takes part in anything.

    read ─▶ rolled back? ─▶ a new incarnation ─▶ entry: starts n, if it is as it was read
     ▲                                               │ not executed, or the outcome is unknown
     └───────────────────────────────────────────────┘ until the roster counts n

If the node does not trust the coordinator, nothing is counted and no disk is doubted: it may be the
coordinator of another cluster. The disk counts its starts too, so a disk that was restored from a
snapshot is found here (rolled_back.py). The entry compares what was read: an operator may remove
the node meanwhile.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from ..config import Replication
from ..coordinator.coordinator import Coordinator
from ..coordinator.coordinator_errors import CoordinatorUnavailableError, UnknownOutcomeError
from .key_values import RosterValue
from .keys import ClusterKeys
from .role_host import Identity, RoleHost
from .rolled_back import why_rolled_back
from .snapshot import Snapshot, SnapshotBuilder
from .transactions import enter


class Registration:
    """See the module: `step` until `done`. `identity` has what the disk counts; `read_keys` reads
    the keys, `distrust` says why they are not to be acted on."""

    def __init__(
        self,
        coordinator: Coordinator,
        keys: ClusterKeys,
        host: RoleHost,
        identity: Identity,
        replication: Replication,
        read_keys: Callable[[], Awaitable[SnapshotBuilder]],
        distrust: Callable[[Snapshot], str],
    ) -> None:
        self.done = False
        self._coordinator = coordinator
        self._keys = keys
        self._host = host
        self._node_id = identity.node_id
        self._starts = identity.starts
        self._replication = replication
        self._read_keys = read_keys
        self._distrust = distrust
        self._checked = False

    async def step(self) -> None:
        """Read the keys and do what is due. Raises CoordinatorUnavailableError."""
        keys = await self._read_keys()
        snapshot = keys.snapshot
        if self._distrust(snapshot):
            return
        entry = snapshot.roster.get(self._node_id, RosterValue())
        if self._checked and entry.starts >= self._starts:
            self.done = True
            return
        revision = keys.revision_of(self._keys.in_roster(self._node_id))
        if not self._checked:
            reason = why_rolled_back(
                snapshot,
                self._node_id,
                self._starts,
                self._host.own_log(),
                waits=self._replication.waits,
            )
            if reason:
                self._starts = max(self._starts, entry.starts + 1)
                await self._host.renew_incarnation(reason, self._starts)
            self._checked = True
        value = replace(entry, starts=self._starts)
        with suppress(CoordinatorUnavailableError, UnknownOutcomeError):
            await self._coordinator.txn(enter(self._keys, self._node_id, value, revision))

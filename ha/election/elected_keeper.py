"""The in-sync set in the coordinator's record, changed by one compare-and-set.

    record(proposed) ─▶ txn: if `state` is unchanged since revision r ─▶ recorded at r' > r
                           │ not executed, or the outcome is unknown
                           ▼
                        read `state`: newer than r ─▶ that is the record now (or this term is over)
                                      still r      ─▶ nothing is known: the same again

A request whose outcome is unknown may be executed late. It compares r too and carries the same set,
so at most one of the repetitions is executed, and it does not matter which.
"""

import logging

from ..coordinator.coordinator import Coordinator
from ..coordinator.coordinator_errors import CoordinatorUnavailableError, UnknownOutcomeError
from ..master.record_keeper import DeposedError
from ..state import InSyncRecord
from .key_values import ClusterRecord, decode_record
from .keys import ClusterKeys
from .transactions import change_set, changed

logger = logging.getLogger(__name__)


class ElectedKeeper:
    """See the module: a RecordKeeper for the term that `record` began at `revision`."""

    def __init__(
        self, coordinator: Coordinator, keys: ClusterKeys, record: ClusterRecord, revision: int
    ) -> None:
        self._coordinator = coordinator
        self._keys = keys
        self.latest = record
        self._revision = revision

    async def record(self, proposed: InSyncRecord) -> bool:
        if self.latest.version >= proposed.version:
            return True
        txn = change_set(self._keys, self.latest, self._revision, proposed)
        try:
            result = await self._coordinator.txn(txn)
            if not result.succeeded:
                await self._read()
                return self.latest.version >= proposed.version
        except (CoordinatorUnavailableError, UnknownOutcomeError) as error:
            logger.warning("the in-sync set could not be recorded, trying again: %s", error)
            return await self._known_now(proposed)
        self.latest, self._revision = changed(self.latest, proposed), result.revision
        return True

    async def _known_now(self, proposed: InSyncRecord) -> bool:
        try:
            await self._read()
        except CoordinatorUnavailableError:
            return False
        return self.latest.version >= proposed.version

    async def _read(self) -> None:
        """Take the record over if it is newer; an unchanged one proves nothing."""
        state = (await self._coordinator.get(self._keys.state)).kv
        if state is None:
            raise CoordinatorUnavailableError("the coordinator has lost the cluster's record")
        if state.mod_revision <= self._revision:
            return
        try:
            record = decode_record(state.value)
        except ValueError as error:
            raise CoordinatorUnavailableError(f"the record cannot be read: {error}") from error
        if record.epoch != self.latest.epoch or not record.led_by(
            self.latest.leader, self.latest.session
        ):
            raise DeposedError(f"{record.leader.node_id} leads epoch {record.epoch}")
        self.latest, self._revision = record, state.mod_revision

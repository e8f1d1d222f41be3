"""The role of the node that takes puts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.ha.master.replication_master import ReplicationMaster
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.message_store import MessageStore

from ..error_status import RequestRefusedError, not_sure
from .role import NodeRole


class TermService(Protocol):
    """What a node does by itself while it is the master: appends what its folds say is due."""

    def begin(self, role: "MasterRole") -> None:
        """The node is the master, in this role. In the loop."""
        ...

    async def end(self) -> None:
        """It is no longer: nothing more is appended after the return."""
        ...


ADMISSION_STEP_S = 0.05
ROUND_S = 2.0
"""How long the answers of the in-sync set are waited for: several heartbeats."""


class MasterRole(NodeRole):
    """See the module. `lease_fault` says why the lease does not hold, if the cluster elects: it
    counts where this node acknowledges alone. `held_back`, if not empty, is why puts have to wait a
    moment."""

    def __init__(
        self,
        store: MessageStore,
        replication: ReplicationMaster,
        *,
        max_unconfirmed_bytes: int = 1 << 30,
        timeout_ms: int = 5_000,
        lease_fault: Callable[[], str] | None = None,
    ) -> None:
        self.held_back = ""
        self._lease_fault = lease_fault
        self._store = store
        self._replication = replication
        self._max_unconfirmed_bytes = max_unconfirmed_bytes
        self._timeout_ms = timeout_ms

    def epoch(self) -> int | None:
        if self._lease_fault is not None and (
            self._replication.stood_still()
            or (self._replication.acts_alone() and self._lease_fault())
        ):
            return None
        return self._replication.epoch

    def leased_epoch(self) -> int | None:
        if self._lease_fault is None:
            # an operator may have named the wrong node: slaves that hold more tell it soon
            return self._replication.epoch if self._replication.may_confirm() else None
        if self._replication.stood_still() or self._lease_fault():
            return None
        return self._replication.epoch

    async def leads(self) -> int:
        epoch = self.leased_epoch()
        elected = self._lease_fault is not None
        if epoch is None and elected and await self._replication.led_after_now(ROUND_S):
            epoch = self._replication.epoch
        # the lease may have been renewed meanwhile
        epoch = self.leased_epoch() if epoch is None else epoch
        if epoch is not None:
            return epoch
        reason = None if elected else self._replication.admission()
        if reason is not None:
            raise RequestRefusedError(common_pb2.NOT_IN_SYNC, reason)
        raise not_sure()

    def admit(self, durability: int) -> None:
        if self.held_back:
            raise RequestRefusedError(common_pb2.NOT_IN_SYNC, self.held_back)
        if self._lease_fault is not None and self._replication.acts_alone():
            fault = self._lease_fault()
            if fault:
                raise RequestRefusedError(common_pb2.NOT_IN_SYNC, fault)
        self._admit_more_log()
        if durability == broker_pb2.NO_WAIT:
            return
        reason = self._replication.admission()
        if reason is not None:
            raise RequestRefusedError(common_pb2.NOT_IN_SYNC, reason)

    def _admit_more_log(self) -> None:
        """What is not confirmed cannot be dropped by retention: without replicas it would grow
        until the disk is full."""
        if not self._replication.config.mode.waits:
            return
        waiting = self._store.log.wrote.value - self._store.confirmed.value
        if waiting >= self._max_unconfirmed_bytes:
            raise RequestRefusedError(
                common_pb2.NOT_IN_SYNC,
                f"{waiting} bytes of the log are not yet confirmed by the in-sync replicas, the "
                f"limit put.max_unconfirmed_bytes is {self._max_unconfirmed_bytes}: wait until the "
                "slaves have caught up, or raise the limit",
                limit=self._max_unconfirmed_bytes,
                actual=waiting,
            )

    def puts_wait(self) -> bool:
        """Whether a put of a client would have to wait now, or be refused: the node's own services
        wait then too."""
        store = self._store
        behind = store.log.wrote.value - store.reputed.value
        if self.epoch() is None or behind > store.config.max_reput_lag_bytes:
            return True
        try:
            self.admit(broker_pb2.CLUSTER)
        except RequestRefusedError:
            return True
        return False

    async def admit_change(self) -> None:
        """A change that too few replicas could take is refused before it is made; slaves that are
        just coming, after a start, are waited for."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_ms / 1000
        while (reason := self._replication.admission()) is not None:
            if loop.time() >= deadline:
                raise RequestRefusedError(common_pb2.NOT_IN_SYNC, reason)
            await asyncio.sleep(ADMISSION_STEP_S)

    async def confirm_table(self, table: str, version: int | None = None) -> None:
        timeout_s = self._timeout_ms / 1000
        if not await self._replication.table_replicated(table, timeout_s, version):
            raise RequestRefusedError(
                common_pb2.OUTCOME_UNKNOWN,
                f"the change of {table} is durable on the master, but not every in-sync replica "
                f"acknowledged it within {self._timeout_ms} ms: it may be lost if the master is; "
                "check the replicas, then try again",
            )

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        flushed = self._store.log.flushed.value
        synchronous = self._replication.config.mode.waits
        flush_waits = self._store.config.flush is FlushMode.SYNC and flushed < end_offset
        if flush_waits or not synchronous:
            return broker_pb2.FLUSH_DISK_TIMEOUT, f"flushed only up to {flushed}"
        confirmed = self._store.confirmed.value
        return (
            broker_pb2.FLUSH_SLAVE_TIMEOUT,
            f"the in-sync replicas have the log only up to {confirmed}",
        )

    def require_master(self, what: str) -> None:
        return

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return self._replication.members()

    def alarms(self) -> Mapping[str, str]:
        return self._replication.group.alarms

    def put_fault(self) -> str:
        return (
            self._store.read_only_reason
            or self.held_back
            or self._doubt()
            or self._replication.admission()
            or ""
        )

    def _doubt(self) -> str:
        """Why no put can be acknowledged as that of a leader: without a valid lease each one needs
        every member of the set, which is not only enough of them."""
        fault = "" if self._lease_fault is None else self._lease_fault()
        if not fault or self._replication.acts_alone():
            return fault
        return "" if self._replication.heard_by_all() else fault

    def read_fault(self) -> str:
        return ""

"""What a node may do as master or as slave; the services use this and need not know replication.

                     master                              slave
    epoch            of its term                         none
    admit            unless too few replicas in sync     never; the hint is the master
    members          itself and its slaves               what the master last told

A role lasts as long as the node runs; a change of role is a new role object.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from ha.config import Replication
from ha.master.master import ReplicationMaster
from ha.slave.slave import ReplicationSlave
from storage.config import FlushMode
from storage.message_store import MessageStore
from tandemlog.v1 import broker_pb2, common_pb2

from .error_status import RequestRefusedError

ADMISSION_STEP_S = 0.05


class NodeRole(Protocol):
    """See the module."""

    def epoch(self) -> int | None: ...

    def admit(self, durability: int) -> None: ...

    def unconfirmed(self, end_offset: int) -> tuple[int, str]: ...

    def require_master(self, what: str) -> None: ...

    async def admit_change(self) -> None:
        """Before a table is changed. Raises RequestRefusedError (NOT_MASTER, NOT_IN_SYNC)."""

    async def settle(self, table: str) -> None:
        """Wait until a changed table is safe. Raises RequestRefusedError (OUTCOME_UNKNOWN)."""

    def members(self) -> Sequence[common_pb2.NodeStatus]: ...

    def alarms(self) -> Mapping[str, str]:
        """Node id -> why this master may lack acknowledged messages of that node, and what to
        do."""
        ...

    def put_fault(self) -> str:
        """Why a put would not be acknowledged now; empty if it would."""

    def read_fault(self) -> str:
        """Why reads are not what they should be; empty if they are."""


class MasterRole:
    """The role of the node that takes puts."""

    def __init__(
        self,
        store: MessageStore,
        replication: ReplicationMaster,
        *,
        max_unconfirmed_bytes: int = 1 << 30,
        timeout_ms: int = 5_000,
    ) -> None:
        self._store = store
        self._replication = replication
        self._max_unconfirmed_bytes = max_unconfirmed_bytes
        self._timeout_ms = timeout_ms

    def epoch(self) -> int | None:
        return self._replication.epoch

    def admit(self, durability: int) -> None:
        self._admit_more_log()
        if durability == broker_pb2.NO_WAIT:
            return
        reason = self._replication.admission()
        if reason is not None:
            raise RequestRefusedError(common_pb2.NOT_IN_SYNC, reason)

    def _admit_more_log(self) -> None:
        """What is not confirmed cannot be dropped by retention: without replicas it would grow
        until the disk is full."""
        if self._replication.config.replication is not Replication.SYNC:
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

    async def admit_change(self) -> None:
        """A change that too few replicas could take is refused before it is made; slaves that are
        just coming, after a start, are waited for."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_ms / 1000
        while (reason := self._replication.admission()) is not None:
            if loop.time() >= deadline:
                raise RequestRefusedError(common_pb2.NOT_IN_SYNC, reason)
            await asyncio.sleep(ADMISSION_STEP_S)

    async def settle(self, table: str) -> None:
        if not await self._replication.table_settled(table, self._timeout_ms / 1000):
            raise RequestRefusedError(
                common_pb2.OUTCOME_UNKNOWN,
                f"the change of {table} is durable on the master, but not every in-sync replica "
                f"acknowledged it within {self._timeout_ms} ms: it may be lost if the master is; "
                "check the replicas, then try again",
            )

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        flushed = self._store.log.flushed.value
        synchronous = self._replication.config.replication is Replication.SYNC
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
        return self._store.read_only_reason or self._replication.admission() or ""

    def read_fault(self) -> str:
        return ""


class SlaveRole:
    """The role of a node that follows a master."""

    def __init__(self, replication: ReplicationSlave, master: str) -> None:
        self._replication = replication
        self._master = master

    def epoch(self) -> int | None:
        return None

    def admit(self, durability: int) -> None:
        self.require_master("send puts to")

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, "this node is a slave"

    async def admit_change(self) -> None:
        self.require_master("change topics on")

    async def settle(self, table: str) -> None:
        self.require_master(f"change {table} on")

    def require_master(self, what: str) -> None:
        raise RequestRefusedError(
            common_pb2.NOT_MASTER,
            f"this node is a slave; {what} the master, {self._master}",
            hint=self._master,
        )

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        """As the master told; before it has told anything, its address is all that is known."""
        rows = self._replication.members()
        if any(row.role == common_pb2.MASTER for row in rows):
            return rows
        master = common_pb2.NodeStatus(
            node_id=self._master,
            role=common_pb2.MASTER,
            endpoint=self._master,
            state="unreachable",
            detail="not known yet",
        )
        return [master, *rows]

    def alarms(self) -> Mapping[str, str]:
        return {}

    def put_fault(self) -> str:
        return "this node is a slave"

    def read_fault(self) -> str:
        state = self._replication.state
        return state.fault or ("no stream from the master yet" if not state.master_id else "")

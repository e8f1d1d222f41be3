"""What a node may do; the services use this and need not know replication.

                     master                              slave, or no leader
    epoch            of its term                         none
    admit            unless too few replicas in sync     never; the hint is the master
    members          itself and its slaves               what the master last told

A role object lasts as long as the role does; a change of role is a new object (role_switch.py).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from tandemlog.v1 import common_pb2


class NodeRole(Protocol):
    """See the module."""

    def epoch(self) -> int | None: ...

    def leased_epoch(self) -> int | None:
        """The epoch, while no other node can lead a later one: by the lease, or, with configured
        roles, while this node could acknowledge a put. None: only the in-sync set can tell, see
        `leads`. Any thread may ask."""

    async def leads(self) -> int:
        """The epoch in which this node leads, known to hold at a moment after this call: by its
        lease, or by a round of the in-sync set. What was read of the store before is true then.
        Raises RequestRefusedError (NOT_MASTER, NOT_IN_SYNC). In the loop."""
        ...

    def admit(self, durability: int) -> None: ...

    def unconfirmed(self, end_offset: int) -> tuple[int, str]: ...

    def require_master(self, what: str) -> None: ...

    async def admit_change(self) -> None:
        """Before a table is changed. Raises RequestRefusedError (NOT_MASTER, NOT_IN_SYNC)."""

    async def settle(self, table: str, version: int | None = None) -> None:
        """Wait until a changed table is safe; `version`: of that change, without it the present
        one. Raises RequestRefusedError (OUTCOME_UNKNOWN)."""

    def require_topics(self) -> None:
        """Raises RequestRefusedError if the topics come from elsewhere and cannot be changed
        here."""

    def require_group(self, group: str) -> None:
        """Raises RequestRefusedError if the offsets of this group come from elsewhere."""

    def members(self) -> Sequence[common_pb2.NodeStatus]: ...

    def alarms(self) -> Mapping[str, str]:
        """Node id -> why this master may lack acknowledged messages of that node, and what to
        do."""
        ...

    def put_fault(self) -> str:
        """Why a put would not be acknowledged now; empty if it would."""

    def read_fault(self) -> str:
        """Why reads are not what they should be; empty if they are."""


class OwnTables:
    """Of a role whose cluster has its topics and groups for itself."""

    def require_topics(self) -> None:
        return

    def require_group(self, group: str) -> None:
        return

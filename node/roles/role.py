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

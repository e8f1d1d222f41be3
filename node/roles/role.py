"""What a node may do; the services use this and need not know replication.

                     master                              slave, or no leader
    epoch            of its term                         none
    admit            unless too few replicas in sync     never; the hint is the master
    members          itself and its slaves               what the master last told

A role object lasts as long as the role does. A change of role is one assignment of a new object:
a caller that asks for the epoch afterwards hears of the new role. So the first step of a demotion
is to set a role without an epoch: nothing is acknowledged from then on, however long the rest
takes. Waiting puts are resolved at once as unknown (`CurrentRole.on_change`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from tandemlog.v1 import common_pb2

from ..error_status import RequestRefusedError, not_sure


class NodeRole(ABC):
    """See the module. The methods here are those of a node without a term."""

    def epoch(self) -> int | None:
        """The epoch of which this node is the master; None if of none. Any thread may ask."""
        return None

    def leased_epoch(self) -> int | None:
        """The epoch, while no other node can lead a later one: by the lease, or, with configured
        roles, while this node could acknowledge a put. None: only the in-sync set can tell, see
        `leads`. Any thread may ask."""
        return None

    async def leads(self) -> int:
        """The epoch in which this node leads, known to hold at a moment after this call: by its
        lease, or by a round of the in-sync set. What was read of the store before is true then.
        Raises RequestRefusedError (NOT_MASTER, NOT_IN_SYNC). In the loop."""
        raise self.no_master("ask")

    def admit(self, durability: int) -> None:
        """Raises RequestRefusedError if a put of that durability cannot be taken now. In the loop;
        a change before the put is appended is noticed before it is acknowledged."""
        raise self.no_master("send puts to")

    @abstractmethod
    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        """PutStatus and sentence for records that are appended but not known to be safe."""

    def require_master(self, what: str) -> None:
        """Raises RequestRefusedError (NOT_MASTER, with the master's endpoint); `what` a caller
        wanted of the master."""
        raise self.no_master(what)

    def no_master(self, what: str) -> RequestRefusedError:
        """The refusal of `what`, such as "send puts to", where this node is not the master."""
        verb = what.removesuffix(" to").removesuffix(" on")
        return RequestRefusedError(common_pb2.NOT_MASTER, f"this node is no master to {verb} now")

    async def admit_change(self) -> None:
        """Before a table is changed. Raises RequestRefusedError (NOT_MASTER, NOT_IN_SYNC)."""
        raise self.no_master("change topics on")

    async def confirm_table(self, table: str, version: int | None = None) -> None:
        """Wait until a changed table is safe; `version`: of that change, without it the present
        one. Raises RequestRefusedError (OUTCOME_UNKNOWN)."""
        raise self.no_master(f"change {table} on")

    def require_topics(self) -> None:
        """Raises RequestRefusedError (CHANGE_REFUSED) if the topics come from elsewhere and cannot
        be changed here."""
        return

    def require_group(self, group: str) -> None:
        """Raises RequestRefusedError if the offsets of this group come from elsewhere."""
        return

    @abstractmethod
    def members(self) -> Sequence[common_pb2.NodeStatus]: ...

    def alarms(self) -> Mapping[str, str]:
        """Node id -> why this master may lack acknowledged messages of that node, and what to
        do."""
        return {}

    @abstractmethod
    def put_fault(self) -> str:
        """Why a put would not be acknowledged now; empty if it would."""

    @abstractmethod
    def read_fault(self) -> str:
        """Why reads are not what they should be; empty if they are."""


class CurrentRole:
    """What the services hold while roles change. Any thread asks `role`, the loop sets it."""

    def __init__(self, first: NodeRole) -> None:
        self.role = first
        self.on_change: Callable[[], None] = lambda: None
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Have `changed` called in the loop after each change, `on_change` before it."""
        self._listeners.append(changed)

    def set(self, role: NodeRole) -> None:
        self.role = role
        self.on_change()
        for changed in self._listeners:
            changed()

    async def leads(self) -> int:
        """NodeRole.leads; refused too if the role has ended meanwhile."""
        role = self.role
        epoch = await role.leads()
        if self.role is not role:
            raise not_sure()
        return epoch

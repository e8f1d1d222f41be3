"""Where the in-sync set is recorded: the seam between a master and what an election reads.

A set is in force from its proposal on, beside the recorded one, until its record is known: see
confirm_offset.py. So a keeper that does not know the outcome reports that, and is asked again.
"""

from typing import Protocol

from ..errors import HaError
from ..state import InSyncRecord


class DeposedError(HaError):
    """The record names another leader, or a higher epoch: this term is over."""


class RecordKeeper(Protocol):
    """Records the in-sync set of one term."""

    async def record(self, proposed: InSyncRecord) -> bool:
        """Whether `proposed` is known to be recorded now; False: not yet, ask again with the same
        one. Raises DeposedError."""
        ...


class LocalKeeper:
    """Roles are configured: the master's own state file is the record, and the master writes it
    itself right afterwards."""

    async def record(self, proposed: InSyncRecord) -> bool:
        return True

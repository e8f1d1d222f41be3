"""The newest epoch of a cluster that one connection has heard of; nothing older is believed.

    descriptions of the cluster ─▶ Topology ─▶ value ◀─ master_epoch of each answer
                                                 │
                      an answer, or a master, of a lower epoch: from before an election

A master that was deposed may not know it, and answers from old tables. A client that goes back to
one would find its messages not stored, its topic not there, its group at an earlier offset. Nodes
of 0.1 send no epoch in their answers: then the epoch of their description counts.
"""

from typing import Any

from ..errors import NotMasterError


class NewestEpoch:
    """See the module. Of one connection, in one event loop."""

    def __init__(self) -> None:
        self.value = 0

    def believe(self, answer: Any, endpoint: str) -> None:
        """Note the epoch of an answer, if it has one. Raises NotMasterError for one that is
        older than what was heard before."""
        error = getattr(answer, "error", None)
        epoch: int = getattr(answer, "master_epoch", 0) or getattr(error, "master_epoch", 0)
        self.heard(epoch)
        if epoch and not is_current(epoch, self.value):
            raise deposed(endpoint, epoch, self.value)

    def heard(self, epoch: int) -> None:
        self.value = max(self.value, epoch)


def is_current(epoch: int, newest: int) -> bool:
    """Whether a master of `epoch` may be believed by who has heard of `newest`."""
    return epoch >= newest


def deposed(who: str, epoch: int, newest: int) -> NotMasterError:
    """The error for an answer, or a claim, of an older epoch."""
    return NotMasterError(
        f"{who} says that it is the master of epoch {epoch}, but epoch {newest} was seen: it was "
        "deposed and does not know it"
    )

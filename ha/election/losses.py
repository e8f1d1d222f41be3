"""How much an unclean term may have begun without: known once the leader before is back, and kept
in the term's entry of the history.

    the leader of term e follows again ─▶ it cuts n bytes off ─▶ history/<e+1>: at most n are lost

A leader holds all that it has acknowledged, and its log ends behind that: so what the new term
lacks of its log is the most that can be lost, whatever other nodes had. A disk that was exchanged,
or has lost its own tail, tells nothing, and the size stays unknown.
"""

import logging
from dataclasses import replace

from ..coordinator.coordinator import Coordinator
from ..coordinator.coordinator_errors import CoordinatorError
from ..coordinator.values import Put, Txn, unchanged
from ..master.master_group import Return
from .key_values import TermValue, decode, encode
from .keys import ClusterKeys

logger = logging.getLogger(__name__)


class Losses:
    """See the module. What the coordinator has not taken yet is tried again with each `write`."""

    def __init__(self, coordinator: Coordinator, keys: ClusterKeys) -> None:
        self._coordinator = coordinator
        self._keys = keys
        self._waiting: list[Return] = []

    def note(self, back: Return) -> None:
        """An earlier leader has come back to this master."""
        self._waiting.append(back)

    async def write(self) -> None:
        """Put what was noted into the history."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            try:
                await self._write(each)
            except CoordinatorError as error:
                logger.info("the size of a loss could not be recorded yet: %s", error)
                self._waiting.append(each)

    async def _write(self, back: Return) -> None:
        key = self._keys.term(back.epoch)
        entry = (await self._coordinator.get(key)).kv
        if entry is None:
            return  # the history no longer goes back so far
        term = with_loss(decode(TermValue, entry.value), back)
        if term is None:
            return
        logger.warning("%s", sentence(back))
        txn = Txn(compares=(unchanged(key, entry.mod_revision),), then=(Put(key, encode(term)),))
        if not (await self._coordinator.txn(txn)).succeeded:
            self._waiting.append(back)


def with_loss(term: TermValue, back: Return) -> TermValue | None:
    """The entry with what is known now; None if that is nothing new. A slave may ask twice, with
    better knowledge of what is equal the second time: the larger size stays."""
    if not term.unclean or term.lost_bytes >= back.cut_bytes:
        return None
    return replace(term, lost_bytes=back.cut_bytes)


def sentence(back: Return) -> str:
    """For the log."""
    who = f"{back.node_id}, which led epoch {back.epoch - 1}, is back: epoch {back.epoch}"
    if not back.cut_bytes:
        return f"{who} has lost nothing"
    return (
        f"{who} began without {back.cut_bytes} bytes of its log, so at most these acknowledged "
        "bytes are lost"
    )

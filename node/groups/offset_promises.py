"""Which of the groups' offsets only this node has yet, so that they may be lost with it.

    begins, moves back ─▶ open ─▶ the in-sync set has the table ─▶ answered, nothing open
    moves forward      ─▶ answered

An offset that moved forward and is lost makes messages come again. One that begins a queue, or is
reset, may not be lost once it was acknowledged: the group would begin where its program says, or
stay where it was, and what was sent before would be skipped. So it is answered as a changed topic
is, once every node that may lead next has the table. Until then nothing else of its group is
answered either: no repetition, no reading of offsets, no later offset.

A new master has offsets of the one before, which the other slaves may lack. None of them was
acknowledged unless the whole set had it, but a caller that asks again would find it here: so in a
new term an offset that is here already is answered as one that begins.
"""

import math
import threading

from tandemlog.format.words import quoted
from tandemlog.v1 import common_pb2
from tandemlog_server.ha.store_port import CONSUMER_OFFSETS
from tandemlog_server.storage.metadata.consumer_offsets import ConsumerOffsets

from ..error_status import RequestRefusedError
from ..roles.role import CurrentRole

NOTHING = -1.0
"""Below every version."""


class OffsetPromises:
    """See the module. `changing`, `changed` from any thread, the rest in the loop."""

    def __init__(self, offsets: ConsumerOffsets, current: CurrentRole) -> None:
        self._offsets = offsets
        self._current = current
        self._lock = threading.Lock()
        # group -> the version of the table that has its newest change of this kind
        self._open: dict[str, float] = {}
        self._terms = 0
        # the version that this term began with, while other nodes may lack it
        self._found: float = offsets.version
        self._inherited = True

    def begin_term(self) -> None:
        self._terms += 1
        self._found, self._inherited = self._offsets.version, True

    def changing(self, group: str) -> None:
        """An offset of this group is about to begin, or to go back; then call `changed`."""
        with self._lock:
            self._open[group] = math.inf

    def changed(self, group: str) -> None:
        with self._lock:
            self._open[group] = self._offsets.version

    async def wait_confirmed(self, group: str, *, repeated: bool = False) -> None:
        """Wait until nothing of this group is open; `repeated`: an offset was committed that was
        there already. Raises RequestRefusedError: NOT_IN_SYNC if that takes too long, since a
        commit may be repeated without harm."""
        since = self._open.get(group, NOTHING)
        if repeated and self._inherited:
            since = max(since, self._found)
        if since == NOTHING:
            return
        # not the present version, if that is newer: under many commits it would never come
        version = int(min(since, self._offsets.version))
        term = self._terms
        try:
            await self._current.role.confirm_table(CONSUMER_OFFSETS, version)
        except RequestRefusedError as error:
            if error.code != common_pb2.OUTCOME_UNKNOWN:
                raise
            raise RequestRefusedError(
                common_pb2.NOT_IN_SYNC,
                f"group {quoted(group)}: an offset that begins a queue, or moves back, is on the "
                "master, but not yet on every in-sync replica, and would be lost with the master; "
                "check the replicas, then commit, or ask, again",
            ) from None
        if term == self._terms and version >= self._found:
            self._inherited = False
        with self._lock:
            for name, since in list(self._open.items()):
                if since <= version:
                    del self._open[name]

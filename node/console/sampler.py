"""Looks at the node once a second, and at its topics and its disk every five, while it has a
console.

The looks are cheap: the counters that the node has anyway, copied in the loop; the topics' are
summed in a thread, where the disk is asked too. A look that fails is a gap in the plots and a line
in the log, once.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tandemlog_server.node.http.workload import Workload

from .history import FINE_STEP_S, TOPIC_STEP_S, History, Look, TopicHistory
from .served_node import ServedNode
from .standing import heard_now, measured_lags

COUNTERS = {
    "puts": "puts_total",
    "put bytes": "put_bytes_total",
    "gets": "get_messages_total",
    "get bytes": "get_bytes_total",
}
"""What is counted, by its name in the plots."""
LEVELS = {
    "put p99": "put_seconds_p99",
    "flush behind": "flush_behind_bytes",
    "confirm behind": "confirm_behind_bytes",
    "reput behind": "reput_behind_bytes",
}
ALL_TOPICS = 1 << 30

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskRoom:
    free_bytes: int
    size_bytes: int


class Sampler:
    """See the module."""

    def __init__(self, node: ServedNode) -> None:
        self._node = node
        self._own = node.config.node_id
        self._workload = Workload(
            node.store,
            max_topics=ALL_TOPICS,
            max_groups=0,
            leads=lambda: False,
            monotonic=time.monotonic,
        )
        self.history = History()
        self.topics = TopicHistory()
        self._disk: DiskRoom | None = None
        self._failed = False

    async def run(self) -> None:
        """Until it is cancelled."""
        turns = round(TOPIC_STEP_S / FINE_STEP_S)
        turn = 0
        while True:
            try:
                self.history.put(time.monotonic(), self._look())
                if turn % turns == 0:
                    await asyncio.to_thread(self._look_longer)
                self._failed = False
            except Exception:
                if not self._failed:
                    logger.exception("the console could not look at the node")
                self._failed = True
            turn += 1
            await asyncio.sleep(FINE_STEP_S - time.monotonic() % FINE_STEP_S)

    def _look(self) -> Look:
        values, members, own = self._node.statistics(), self._node.members(), self._own
        heard, measured = heard_now(members, own), measured_lags(members, own)
        return Look(
            {name: values[key] for name, key in COUNTERS.items()},
            {name: values[key] for name, key in LEVELS.items()},
            {
                each.node_id: (
                    each.wrote_offset,
                    each.lag_bytes if each.node_id in measured else None,
                )
                for each in members
                if each.wrote_offset and each.node_id in heard
            },
        )

    async def disk(self) -> DiskRoom:
        """Of the store, not older than a few seconds while the disk answers. Raises OSError."""
        if self._disk is None:
            await asyncio.to_thread(self._look_at_disk)
        assert self._disk is not None
        return self._disk

    def _look_longer(self) -> None:
        """What takes too long for the loop."""
        self._look_at_disk()
        self.topics.put(time.monotonic(), self._topics())

    def _look_at_disk(self) -> None:
        found = shutil.disk_usage(self._node.store.directory)
        self._disk = DiskRoom(found.free, found.total)

    def _topics(self) -> Mapping[str, Sequence[float]]:
        return {
            name: (each.messages_in, each.bytes_in, each.messages_out, each.bytes_out)
            for name, each in self._workload.traffic().items()
        }

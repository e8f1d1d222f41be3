"""What a stream does in queues in which the log was cut below messages that it has read.

    delivered up to       9    three messages are lost
    fetched up to        13    messages in the buffer were not delivered: they are dropped
    first behind the cut  6    the stream continues there

Queues that are not read at this moment have positions too: those that are paused, those of deleted
topics, those that a member lost a moment ago, and those in which it is about to begin.
"""

import logging
from collections.abc import Callable

from ...errors import LogCutError, TandemlogError
from ..progress import Progress
from ..reading.cut_watch import TurnOffsets
from ..reading.positions import Queue
from .fetcher import Fetcher

logger = logging.getLogger(__name__)


class Cuts:
    """See the module; one event loop. `former`: where queues were that are lost; `begins`: where a
    group begins in queues without a committed offset."""

    def __init__(
        self,
        progress: Progress,
        fetcher: Fetcher,
        on_data_loss: str,
        failed: Callable[[TandemlogError], None],
        interrupt: Callable[[], None],
    ) -> None:
        """`failed` ends the reading with an error, `interrupt` calls the caller back: what it has
        in hand does not count any more."""
        self._progress, self._failed, self._interrupt = progress, failed, interrupt
        self._fetcher = fetcher
        self._on_data_loss = on_data_loss
        self.former: dict[Queue, int] = {}
        self.begins: dict[Queue, int] = {}
        fetcher.unread, fetcher.on_cut = self._unread, self._cut

    def _unread(self) -> TurnOffsets:
        progress = self._progress
        others = {**self.begins, **self.former}
        unread = {queue: (-1, offset) for queue, offset in others.items()}
        for queue in progress.paused | self._fetcher.deleted:
            unread[queue] = progress.turn(queue), progress.position(queue)
        return unread

    def _cut(self, queue: Queue, first: int) -> None:
        """What lies at or behind `first` is not in the log any more: reading continues there, and
        what was not delivered yet is read again."""
        progress, former = self._progress, self.former.pop(queue, None)
        if queue in self.begins:
            self.begins[queue] = min(self.begins[queue], first)
        is_read = queue in progress.queues
        position = progress.position(queue) if is_read else former or 0
        lost = max(0, position - first)
        self._fetcher.counters.lost_messages += lost
        text = (
            f"{queue[0]}/{queue[1]}: {lost} messages that were read before {position} are not in "
            "the log any more, other ones may have their offsets"
        )
        if lost and self._on_data_loss == "error":
            self._fetcher.drop([queue])
            self._failed(LogCutError(text, field="queue_offset", actual=position))
            return
        if lost:
            logger.warning("messages are lost here, reading continues at %d: %s", first, text)
        if not is_read:
            return
        offset = progress.cut(queue, first)
        if queue in progress.paused or queue in progress.leaving:
            self._fetcher.drop([queue])
        else:
            self._fetcher.read_from({queue: offset}, progress.turn)
        self._interrupt()

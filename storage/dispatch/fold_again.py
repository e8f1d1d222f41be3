"""A fold that missed records of the log, rebuilt beside the one that is in use.

    log      | r r r R r r r r r r r |      R: damaged until now, whole again
    in use   state without R .........next_offset        serves meanwhile, and grows
    again    begin ────▶ with R ────▶ the same offset: takes its place, in one step

A fold that is set back and filled again would, meanwhile, know of delayed messages and not of their
delivery, and of leases and not of their ends: what was done would be done twice. So the fold that
is in use stays as it is until another one of its kind has come to the same place of the log.
"""

import logging
from collections.abc import Sequence

from tandemlog.format.constants import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SERVICE_TOPIC,
    TIMER_TOPIC,
    UNDECIDED_TOPIC,
)
from tandemlog.format.errors import FormatError

from ..folds.dispatch_batch import DispatchBatch
from ..folds.service_fold import ServiceFold
from ..folds.snapshot_form import snapshot_offset

logger = logging.getLogger(__name__)

_TOPICS = (
    HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, SERVICE_TOPIC, TIMER_TOPIC, UNDECIDED_TOPIC,
)  # fmt: skip


def concerns_folds(batch: DispatchBatch, in_use: Sequence[ServiceFold]) -> bool:
    """Whether a record of the batch may say something to the fold of a service."""
    if batch.has_any(_TOPICS) or len(batch.naming):
        return True
    # what a broker delivered names no record, and tells only a fold for which something waits
    return any(len(fold.snapshot().rows) for fold in in_use)


class FoldAgain:
    """See the module; `fold` is in use and missed a record at log offset `missed`. The dispatcher
    calls. Retention keeps the log from `missed` on: the fold in use does not know what is there."""

    def __init__(self, fold: ServiceFold, missed: int) -> None:
        self.fold = fold
        self.missed = missed
        self._fresh = type(fold)()
        data, noted = fold.saved(), -1 if fold.noted is None else fold.noted
        try:
            # beyond `noted` it is of a log before an earlier cut
            if data is not None and snapshot_offset(data) <= min(noted, missed):
                self._fresh.restore(data)
        except FormatError:
            pass  # damaged: the log has it all

    @property
    def next_offset(self) -> int:
        return self._fresh.next_offset

    def apply(self, batch: DispatchBatch) -> None:
        """A batch that begins at `next_offset`, or at the log's begin; no later one is taken."""
        if self.next_offset <= batch.start:
            self._fresh.apply(batch)

    def take_place(self) -> bool:
        """Let the fold that is in use become what this one is, if this one has come as far; whether
        it has. No snapshot on the disk is true for it then: the next checkpoint writes one."""
        fold = self.fold
        if self.next_offset < fold.next_offset:
            return False
        with fold.lock:
            fold.restore(self._fresh.snapshot().encode())
            fold.noted = None
        logger.info("%s was rebuilt: log_offset=%d", fold.name, self.next_offset)
        return True

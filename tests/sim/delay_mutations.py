"""Rules of messages that come later, switched off one at a time: the simulation must notice.

Cuts and snapshots of folds have tests of their own (tests/storage/folds)."""

from typing import Any

import numpy as np

from sim.store_mutations import Patch, constant, nothing
from tandemlog_server.storage.folds.delay_fold import DelayFold
from tandemlog_server.storage.folds.fold import ANYWHERE
from tandemlog_server.storage.folds.fold_file import FoldFile
from tandemlog_server.storage.folds.waiting_rows import WaitingRows
from tandemlog_server.storage.services.delay_desk import DelayDesk


def ends_nothing(this: WaitingRows, offsets: Any) -> Any:
    return np.empty(0, np.int64)


def all_wait(this: WaitingRows, offsets: Any) -> Any:
    return np.ones(len(offsets), np.bool_)


def needs_nothing(this: DelayFold) -> int:
    return ANYWHERE


def due_at_once(this: WaitingRows, now_ms: int, limit: int) -> Any:
    return DUE(this, now_ms + 600, limit)


DUE = WaitingRows.due
MUTATIONS: dict[str, list[Patch]] = {
    "a message that came ends nothing": [(WaitingRows, "end", ends_nothing)],
    "a term decides before it knows the last one's decisions": [
        (DelayDesk, "ready", property(lambda this: this._began_at is not None))
    ],
    "a decision does not look again under the lock": [(WaitingRows, "waits", all_wait)],
    "retention deletes what waits": [
        (DelayFold, "needs_from", needs_nothing), (FoldFile, "keep_from", constant(ANYWHERE)),
    ],
    "what is appended does not count until it is dispatched": [(WaitingRows, "take", nothing)],
    "messages come too early": [(WaitingRows, "due", due_at_once)],
}  # fmt: skip

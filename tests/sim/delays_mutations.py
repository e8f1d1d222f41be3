"""Rules of delayed messages, each switched off: a run must notice."""

from dataclasses import dataclass
from typing import Any

from tandemlog_server.storage.folds.waiting_rows import WaitingRows
from tandemlog_server.storage.services.delay_desk import DelayDesk


@dataclass(frozen=True)
class Mutation:
    target: Any
    name: str
    instead: Any


_end = WaitingRows.end


def _decide_at_once(self: DelayDesk) -> bool:
    return self._began_at is not None


def _take_nothing(self: WaitingRows, offsets: Any) -> None:
    """A record that is delivered waits until dispatch comes to it."""


def _end_nothing(self: WaitingRows, offsets: Any) -> Any:
    return _end(self, offsets[:0])


MUTATIONS = {
    "a term waits for the log before it": Mutation(DelayDesk, "ready", property(_decide_at_once)),
    "what is appended is taken": Mutation(WaitingRows, "take", _take_nothing),
    "a delivered message ends its record": Mutation(WaitingRows, "end", _end_nothing),
}

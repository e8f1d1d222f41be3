"""Which records of a log are wanted: those of some topics, stored in a stretch of time.

piece      | a | b | a | c |        windows are read and checked whole
selected   | a |   | a |   |        rows of the same window: no byte is copied
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.topics import topics_of
from tandemlog.format.columns.walk import WalkResult

from .span_scan import Piece

_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Selection:
    """Records of `topics` (none: of all), as the records name them, with a store time (ms) from
    `since_ms` on and before `before_ms`."""

    topics: Collection[str] = field(default_factory=frozenset)
    since_ms: int = 0
    before_ms: int = _NEVER

    @property
    def is_all(self) -> bool:
        return not self.topics and self.has_all_times

    @property
    def has_all_times(self) -> bool:
        return self.since_ms <= 0 and self.before_ms >= _NEVER

    def may_have(self, first_ms: int, last_ms: int) -> bool:
        """Whether a record with a store time from `first_ms` to `last_ms` may be wanted."""
        return first_ms < self.before_ms and last_ms >= self.since_ms

    def of(self, piece: Piece) -> Piece:
        """The records of the piece that are wanted; maybe none."""
        if self.is_all or not piece.count:
            return piece
        wanted = self._rows(piece)
        if wanted.all():
            return piece
        walked = piece.walk
        rows = WalkResult(walked.positions[wanted], walked.sizes[wanted], walked.end, walked.stop)
        return Piece(piece.data, piece.base, rows, piece.headers.rows(wanted))

    def _rows(self, piece: Piece) -> NDArray[np.bool_]:
        wanted = np.ones(piece.count, np.bool_)
        if not self.has_all_times:
            times = piece.headers.store_timestamp
            wanted &= (times >= self.since_ms) & (times < self.before_ms)
        if self.topics:
            names, which = topics_of(piece.data, piece.headers)
            wanted &= np.array([name in self.topics for name in names], np.bool_)[which]
        return wanted

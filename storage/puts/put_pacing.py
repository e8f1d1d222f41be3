"""Puts wait a little where dispatch is far behind them.

    reputed ...................... confirmed
            |<--- at most limit --->|           beyond it a put waits until the half is dispatched

Append is cheaper than dispatch, and the two share one interpreter: without this a long burst would
leave consumers ever further behind, and a crash at its end ever more of the log to dispatch again.
Puts wait only while dispatch moves: if it is stuck (no space for a queue), they do not wait for it,
and say themselves when the log has no room. Nor do they wait for what a crash left to dispatch: the
puts before the crash have waited for that themselves.
"""

from typing import Final

from ..errors import StoreError
from ..positions import Position

_STUCK_AFTER_S: Final = 0.25


class PutPacing:
    """See the module; belongs to the appender."""

    def __init__(self, confirmed: Position, reputed: Position, limit_bytes: int) -> None:
        self._confirmed = confirmed
        self._reputed = reputed
        self._limit = limit_bytes
        self._begin = 0
        self._stuck_at = -1

    def begin_at(self, log_offset: int) -> None:
        """Puts begin here; what lies before counts as dispatched."""
        self._begin = log_offset

    def wait(self) -> None:
        """Return when another put may come; returns at once if dispatch keeps up."""
        end = self._confirmed.value
        while end - max(self._reputed.value, self._begin) > self._limit:
            seen = self._reputed.value
            if seen == self._stuck_at:
                return
            try:
                if self._reputed.wait(end - self._limit // 2, _STUCK_AFTER_S):
                    return
            except StoreError:
                return  # the put itself raises it
            if self._reputed.value == seen:
                self._stuck_at = seen

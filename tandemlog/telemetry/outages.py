"""Tells the program when its cluster has no master that answers, and when it has one again.

    there ──no master in a round of questions──▶ away ──a master──▶ there
                on_away(reason, since), once             on_back(outage_ms), once

A client that has never reached its cluster is not told: its first call fails. An exception of a
callback is logged; it never reaches the client.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

OnAway = Callable[[str, float], object]
OnBack = Callable[[float], object]


def call_back(callback: Callable[..., object] | None, *arguments: Any) -> None:
    """Calls what the program gave, if it gave something."""
    if callback is None:
        return
    try:
        callback(*arguments)
    except Exception:
        logger.exception("a callback of the program failed: %r", callback)


class Outages:
    """See the module. `wall_clock` gives seconds since 1970, `monotonic` those of durations."""

    def __init__(
        self,
        on_away: OnAway | None,
        on_back: OnBack | None,
        wall_clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_away, self._on_back = on_away, on_back
        self._wall_clock, self._monotonic = wall_clock, monotonic
        self._was_there = False
        self._away_at: float | None = None

    @property
    def watched(self) -> bool:
        """Whether the program wants to know."""
        return self._on_away is not None or self._on_back is not None

    @property
    def away(self) -> bool:
        return self._away_at is not None

    def looked(self, *, master: bool, reason: str) -> None:
        """After each round of questions: whether a node says that it is the master."""
        if master:
            self._was_there = True
            if self._away_at is not None:
                outage_ms = (self._monotonic() - self._away_at) * 1000
                self._away_at = None
                call_back(self._on_back, outage_ms)
        elif self._was_there and self._away_at is None:
            self._away_at = self._monotonic()
            call_back(self._on_away, reason, self._wall_clock())

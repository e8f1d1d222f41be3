"""What one holder, a connection or an identity, uses now, and what it may use.

    call begins ──▶ count ──▶ above a limit? ── OverLimitError, by name ──▶ BUSY
    call ends   ──▶ count back

Everything is counted when it begins and counted back when it ends. A refused call counts too, until
gRPC is done with it. Bytes in flight stop a stream from being read further; they
refuse nothing, since the client has sent them already.

Calls and bytes per second are token buckets (storage/token_bucket.py).
"""

from collections.abc import Callable

from tandemlog_server.storage.token_bucket import TokenBucket

from .access_refusals import OverLimitError
from .identities import CallerLimits

LONGEST_WAIT_S = 1.0
"""A read that would have to wait longer for its rate is refused, and its caller tries again."""


class Usage:
    """See the module. `holder` and `setting` name it in an error: `limits.connection_` and the
    like, in front of the name of a limit."""

    def __init__(self, holder: str, setting: str, limits: CallerLimits, now: float) -> None:
        self._holder = holder
        self._setting = setting
        self.calls = 0
        self.streams = 0
        self.long_polls = 0
        self.bytes = 0
        self._when_room: list[Callable[[], None]] = []
        self.set_limits(limits, now)

    def set_limits(self, limits: CallerLimits, now: float) -> None:
        """What is counted stays; rates begin with a full second."""
        self.limits = limits
        self._calls_rate = TokenBucket(limits.calls_per_s, now) if limits.calls_per_s else None
        self._bytes_rate = TokenBucket(limits.bytes_per_s, now) if limits.bytes_per_s else None
        self._tell_room()

    @property
    def idle(self) -> bool:
        """Whether nothing is counted, and nothing would be forgotten with this object."""
        rated = self._calls_rate is not None or self._bytes_rate is not None
        return not (self.calls or self.bytes or rated)

    def check(self, *, stream: bool, now: float) -> None:
        """After a call was counted. Raises OverLimitError."""
        limits = self.limits
        if limits.calls and self.calls > limits.calls:
            raise self._over("calls", limits.calls, self.calls)
        if stream and limits.streams and self.streams > limits.streams:
            raise self._over("streams", limits.streams, self.streams)
        if self._calls_rate is not None and not self._calls_rate.try_spend(1, now):
            raise self._over_rate("calls_per_s", limits.calls_per_s)
        if self._bytes_rate is not None and self._bytes_rate.wait_s(now) > LONGEST_WAIT_S:
            raise self._over_rate("bytes_per_s", limits.bytes_per_s)

    def check_long_poll(self) -> None:
        """Before one more pull waits. Raises OverLimitError."""
        limit = self.limits.long_polls
        if limit and self.long_polls >= limit:
            raise self._over("long_polls", limit, self.long_polls + 1)

    def spend(self, size: int, now: float, *, calls: int = 0) -> float:
        """Bytes that came in or go out, and requests of a stream; returns the seconds to wait."""
        wait = 0.0
        if self._bytes_rate is not None:
            wait = self._bytes_rate.spend(size, now)
        if calls and self._calls_rate is not None:
            wait = max(wait, self._calls_rate.spend(calls, now))
        return wait

    # ---- bytes in flight

    @property
    def full(self) -> bool:
        """Whether as many bytes are in flight as may be."""
        return bool(self.limits.bytes_in_flight) and self.bytes >= self.limits.bytes_in_flight

    def hold(self, size: int) -> None:
        """`size` bytes more are in flight; fewer, if it is negative."""
        self.bytes += size
        if size < 0:
            self._tell_room()

    def when_room(self, call: Callable[[], None]) -> None:
        """Have `call` called once there is room for more bytes."""
        self._when_room.append(call)

    def _tell_room(self) -> None:
        if self._when_room and not self.full:
            waiting, self._when_room = self._when_room, []
            for call in waiting:
                call()

    def _over(self, name: str, limit: int, actual: int) -> OverLimitError:
        return OverLimitError(
            name,
            limit,
            actual,
            f"{self._holder} has {actual} {name} in progress, the limit {self._setting}{name} is "
            f"{limit}; try again later",
        )

    def _over_rate(self, name: str, limit: int) -> OverLimitError:
        return OverLimitError(
            name,
            limit,
            limit + 1,
            f"{self._holder} is above the limit {self._setting}{name}, which is {limit}; try again "
            "later",
        )

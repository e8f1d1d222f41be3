"""When `up` restarts a node of its own that has ended.

    ends, having run long    restart after FIRST_S
    ends again soon          the pause doubles, up to LONGEST_S
    exit code 0              an operator stopped it: leave it alone
    a code of NOT_RESTARTED  a restart would end in the same way: leave it alone

A node that is killed comes back within a second; one that cannot start does not keep the machine
busy.
"""

from dataclasses import dataclass

from ..shared.exit_codes import ADDRESS, OK, STORE, USAGE

FIRST_S = 0.5
LONGEST_S = 30.0
LONG_RUN_S = 60.0
NOT_RESTARTED = frozenset({OK, USAGE, STORE, ADDRESS})


@dataclass(slots=True)
class Restarts:
    """The restarts of one node. Times are seconds of the caller's monotonic clock."""

    started_at: float
    pause_s: float = FIRST_S
    due_at: float | None = None

    def ended(self, exit_code: int, now: float) -> bool:
        """The node has ended; whether it is to be restarted. A second call changes nothing."""
        if exit_code in NOT_RESTARTED:
            return False
        if self.due_at is None:
            if now - self.started_at >= LONG_RUN_S:
                self.pause_s = FIRST_S
            self.due_at = now + self.pause_s
        return True

    def is_due(self, now: float) -> bool:
        return self.due_at is not None and now >= self.due_at

    def restarted(self, now: float) -> None:
        """It runs again. The next pause is longer, unless it now runs for long."""
        self.started_at, self.due_at = now, None
        self.pause_s = min(2 * self.pause_s, LONGEST_S)

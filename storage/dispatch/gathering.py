"""How long dispatch lets data gather between two rounds.

    requests   | | | | | | | | | | | |
    rounds     ██······██······██······        · until GATHER_S after the round began

A round costs about a millisecond however little it takes, and wakes the long polls that wait for
it, so a round for each of many small requests would take more of the processor than the messages
do. A message is in its queue GATHER_S later than without this, at most.

What comes by itself does not wait: after a round of less than FEW_BYTES, and after a pause, the
next one begins at once. Nor does dispatch that is behind: with MANY_BYTES left a round is worth
its cost.
"""

from typing import Final

GATHER_S: Final = 0.005
FEW_BYTES: Final = 32 << 10
MANY_BYTES: Final = 256 << 10


def gathering_s(dispatched: int, left: int, spent_s: float) -> float:
    """Seconds to wait before the next round, after one of `dispatched` bytes of log that took
    `spent_s` and left `left` bytes that are confirmed by now."""
    if dispatched < FEW_BYTES or left >= MANY_BYTES:
        return 0.0
    return max(0.0, GATHER_S - spent_s)

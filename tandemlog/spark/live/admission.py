"""How many of the available messages one micro-batch takes.

    queue 0   start |#######........| end      each queue gives in proportion to what it has, so
    queue 1   start |##..| end                 that no queue falls behind the others forever

Pure: the ranges of the queues, the size of messages and the time are arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..cluster.live_options import Admission
from ..cluster.queue_offsets import Offsets, Queue


def share_rows(starts: Offsets, ends: Offsets, max_rows: int) -> Offsets:
    """Ends with at most `max_rows` from start to end together, and exactly that many if there are;
    the remainder goes to the queues that lost most by rounding, in order."""
    lags = {queue: max(end - starts.get(queue, 0), 0) for queue, end in ends.items()}
    total = sum(lags.values())
    if total <= max_rows:
        return dict(ends)
    shares = {queue: lag * max_rows // total for queue, lag in lags.items()}
    remainder = max_rows - sum(shares.values())
    by_loss = sorted(lags, key=lambda queue: (-(lags[queue] * max_rows % total), queue))
    for queue in by_loss[:remainder]:
        shares[queue] += 1
    return {queue: starts.get(queue, 0) + shares[queue] for queue in ends}


def share_bytes(
    starts: Offsets, ends: Offsets, max_bytes: int, sizes: Mapping[Queue, float]
) -> Offsets:
    """Ends with about `max_bytes` from start to end together, and one message at least; `sizes` are
    the mean bytes of a message of each queue."""
    lags = {queue: max(end - starts.get(queue, 0), 0) for queue, end in ends.items()}
    total = sum(lags[queue] * sizes.get(queue, 0.0) for queue in lags)
    if total <= max_bytes:
        return dict(ends)
    return share_rows(starts, ends, max(int(sum(lags.values()) * max_bytes / total), 1))


@dataclass(slots=True)
class Gate:
    """Delays a micro-batch until there are `min_rows`, or `max_delay_ms` have passed since the last
    one. The first one is not delayed."""

    admission: Admission
    _last_ms: float = float("-inf")

    def opens(self, starts: Offsets, ends: Offsets, now_ms: float) -> bool:
        least = self.admission.min_rows
        rows = sum(max(end - starts.get(queue, 0), 0) for queue, end in ends.items())
        waited = now_ms - self._last_ms >= self.admission.max_delay_ms
        if least is not None and rows < least and not waited:
            return False
        self._last_ms = now_ms
        return True

"""How puts were answered: counts by result, and how long an acknowledgement took.

Belongs to the loop, like the answers themselves: one writer, no lock.
"""

from tandemlog.v1 import broker_pb2
from tandemlog_server.storage.stats import LatencyHistogram

OK = "ok"
TIMEOUT = "timeout"
NOT_ENOUGH_ISR = "not_enough_isr"
UNKNOWN = "unknown"
REFUSED = "refused"

_RESULTS: dict[int, str] = {
    broker_pb2.PUT_OK: OK,
    broker_pb2.FLUSH_DISK_TIMEOUT: TIMEOUT,
    broker_pb2.FLUSH_SLAVE_TIMEOUT: TIMEOUT,
    broker_pb2.IN_SYNC_REPLICAS_NOT_ENOUGH: NOT_ENOUGH_ISR,
    broker_pb2.UNKNOWN_ERROR: UNKNOWN,
}


class AckStats:
    """Since the start of the node: `results` count requests, `seconds` messages. `confirm_seconds`
    counts requests: from their append until all in-sync replicas had them."""

    def __init__(self, seconds: LatencyHistogram | None = None) -> None:
        self.results = dict.fromkeys((OK, TIMEOUT, NOT_ENOUGH_ISR, UNKNOWN, REFUSED), 0)
        self.seconds = seconds if seconds is not None else LatencyHistogram()
        self.confirm_seconds = LatencyHistogram()

    def record(self, status: int, seconds: float, messages: int = 1, requests: int = 1) -> None:
        """Answers with a PutStatus, `seconds` after their requests of `messages` came in."""
        result = _RESULTS.get(status, REFUSED)
        self.results[result] += requests
        if result == OK:
            self.seconds.record(seconds, messages)

"""Messages that come later, as a producer sends them: when, and what the result says of it.

    send(message, delay=...)        ─▶ Later ─▶ the waiting record, and Delayed: kept for the result
    send(message, deliver_at=...)
    answer of the master            ─▶ deliver_at_ms, recall_handle

The waiting record goes to a topic of the store. The message itself gets its queue offset when it
comes.
"""

from dataclasses import dataclass

from .format.delay.framing import after, at
from .format.delay.handle import handle_of


@dataclass(frozen=True, slots=True)
class Later:
    """When a message is to come: so many ms after it is stored, or at a time (ms)."""

    delay_ms: int | None = None
    due_ms: int | None = None

    def properties(self, topic: str, queue_id: int, now_ms: int) -> dict[str, str]:
        """The properties more of a message to this queue."""
        if self.due_ms is not None:
            return at(topic, queue_id, self.due_ms)
        assert self.delay_ms is not None
        return after(topic, queue_id, self.delay_ms, now_ms)


@dataclass(frozen=True, slots=True)
class Delayed:
    """A message that was sent to come later: where to, its UNIQ_KEY, and when."""

    topic: str
    queue_id: int
    key: str
    later: Later

    def due_ms(self, store_timestamp: int) -> int:
        """When it comes, if its record was stored at `store_timestamp` (ms)."""
        if self.later.due_ms is not None:
            return self.later.due_ms
        assert self.later.delay_ms is not None
        return store_timestamp + self.later.delay_ms

    def handle(self, store_timestamp: int, log_offset: int) -> str:
        """By which it is called back; empty if the position of its record is not known."""
        if log_offset < 0:
            return ""
        return handle_of(self.topic, self.due_ms(store_timestamp), self.key, log_offset).encode()

"""Messages of a transaction, as a producer sends them.

    t.send(message) ─▶ InTransaction ─▶ the half record, and HeldBack: kept for the result

The half goes to a topic of the store. The message itself gets its queue offset when the transaction
is committed: the result of the commit says it.
"""

from dataclasses import dataclass

from .format.transaction.half import half_properties


@dataclass(frozen=True, slots=True)
class InTransaction:
    """The transaction that a message belongs to, and who may be asked about it."""

    transaction_id: str
    group: str

    def properties(self, topic: str, queue_id: int, key: str) -> dict[str, str]:
        """The properties more of a message to this queue; `key` is its UNIQ_KEY."""
        return half_properties(
            topic, queue_id, group=self.group, key=key, transaction_id=self.transaction_id
        )


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A message that was sent in a transaction, and where to. It is not delayed."""

    topic: str
    queue_id: int

    def due_ms(self, store_timestamp: int) -> int | None:
        """It does not come at a time."""
        return None

    def handle(self, store_timestamp: int, log_offset: int) -> str:
        """It is not called back, but rolled back."""
        return ""

"""What a node tells that takes over from the RocketMQ broker whose log it followed."""

from dataclasses import dataclass

from ..v1 import admin_pb2

DRY_RUN = "a dry run changes nothing"
"""What a takeover waits for that was only asked about, if nothing else is in its way."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """`waits_for` is empty once the node is the master. `end_offset` is where the broker's part of
    the log ends here, `broker_end_offset` where the broker's log ended when it was last asked (-1:
    never). Times are wall-clock milliseconds: `last_stored_ms` by the broker's clock, for its
    newest message; `taken_ms` by the node's, 0 before it is the master."""

    node_id: str
    waits_for: str
    broker: str
    end_offset: int
    broker_end_offset: int
    epoch: int
    last_stored_ms: int
    taken_ms: int

    @property
    def taken_over(self) -> bool:
        """Whether the node is the master of the log now."""
        return not self.waits_for

    @property
    def break_ms(self) -> int:
        """How long no message was stored, from the broker's newest one on; 0 before the node is the
        master, or if it held none."""
        if not (self.taken_ms and self.last_stored_ms):
            return 0
        return max(0, self.taken_ms - self.last_stored_ms)


def takeover_of(answer: admin_pb2.TakeOverResponse) -> Takeover:
    return Takeover(
        node_id=answer.answered_by,
        waits_for=answer.waits_for,
        broker=answer.broker,
        end_offset=answer.end_offset,
        broker_end_offset=answer.broker_end_offset,
        epoch=answer.epoch,
        last_stored_ms=answer.last_stored_ms,
        taken_ms=answer.taken_ms,
    )

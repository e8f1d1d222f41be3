"""What a node tells of its scrub: how far it is, what it mended, what it could not settle."""

from dataclasses import dataclass

from ..v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """Log bytes start .. end-1 of a node that are damaged or in doubt; `lost`: no node that was
    asked has a whole copy. `since_ms`: when it was found, milliseconds since 1970."""

    start: int
    end: int
    lost: bool
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class ScrubStatus:
    """The round is at `next_offset` of a log that holds log_begin .. log_end-1. Times are
    milliseconds since 1970, 0 for never; `round_ended_ms` is 0 while a round is under way. The
    counts begin with the node's process. `fault`: why the scrub has stopped; empty if it has
    not."""

    node_id: str
    on: bool
    next_offset: int
    log_begin: int
    log_end: int
    round_began_ms: int
    round_ended_ms: int
    rounds: int
    checked_bytes: int
    damaged_blocks: int
    mended_blocks: int
    mended_bytes: int
    failed_mendings: int
    rebuilt_queues: int
    compared_blocks: int
    open_blocks: tuple[OpenBlock, ...]
    fault: str


def scrub_of(answer: admin_pb2.ScrubResponse) -> ScrubStatus:
    return ScrubStatus(
        answer.answered_by,
        answer.on,
        answer.next_offset,
        answer.log_begin,
        answer.log_end,
        answer.round_began_ms,
        answer.round_ended_ms,
        answer.rounds,
        answer.checked_bytes,
        answer.damaged_blocks,
        answer.mended_blocks,
        answer.mended_bytes,
        answer.failed_mendings,
        answer.rebuilt_queues,
        answer.compared_blocks,
        tuple(
            OpenBlock(each.start, each.end, each.lost, each.reason, each.since_ms)
            for each in answer.open
        ),
        answer.fault,
    )

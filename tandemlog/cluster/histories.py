"""Asking whether positions still mean the same: the call CheckPositions, and its messages.

positions that were read from a log with history A ──▶ master ──▶ its history B,
                                                                  and which were cut, and where
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import BadRecordError, InvalidArgumentError, NodeUnavailableError
from ..format.calls import MAX_ROWS
from ..format.errors import FormatError
from ..format.files.log_history import MAX_TERMS, LogHistory, LogTerm
from ..v1 import broker_pb2
from .node import Node
from .paging import in_parts

Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PositionCheck:
    """`history` of the node's log, with which the positions are compared now; `cut`: by (topic,
    queue id), where reading continues in queues that were cut below their position. The other
    positions mean the same as before."""

    history: LogHistory
    cut: Mapping[Queue, int] = field(default_factory=dict)


async def check_positions(
    node: Node, history: LogHistory | None, positions: Mapping[Queue, int], timeout_ms: int
) -> PositionCheck:
    """Compare queue offsets, each of the next message to read, that came from a log with `history`
    with the node's log; without a history, or positions, only get the node's.

    Raises what the node refuses, InvalidArgumentError of an older node (see `is_unknown_call`),
    NodeUnavailableError if its log has not got as far as that of the positions, and BadRecordError
    for an answer that cannot be decoded.
    """
    cut: dict[Queue, int] = {}
    compared: LogHistory | None = None
    rows = list(positions.items()) if history is not None else []
    for part in in_parts(rows, MAX_ROWS) or [()]:
        request = broker_pb2.CheckPositionsRequest(
            positions=[
                broker_pb2.QueuePosition(topic=topic, queue_id=queue_id, queue_offset=offset)
                for (topic, queue_id), offset in part
            ]
        )
        if history is not None:
            put_history(history, request.history)
        answer = await node.ask(node.broker.CheckPositions, request, timeout_ms)
        try:
            current = history_of(answer.history)
        except FormatError as error:
            raise BadRecordError(f"{node.endpoint}: {error}") from error
        if compared is not None and current.newest != compared.newest:
            # another term has begun between two parts: what the first said is of the one before
            return await check_positions(node, history, positions, timeout_ms)
        compared = current
        cut.update({(each.topic, each.queue_id): each.queue_offset for each in answer.cut})
    assert compared is not None
    if history is not None and is_behind(compared, history):
        raise NodeUnavailableError(
            f"{node.endpoint}: its log ends in epoch {compared.newest[0]}, the positions are of a "
            f"log that continued in epoch {history.newest[0]}",
            reason="its log is behind",
        )
    return PositionCheck(compared, cut)


def is_unknown_call(error: Exception) -> bool:
    """Whether a node is too old to know CheckPositions."""
    return isinstance(error, InvalidArgumentError) and error.reason == "no tandemlog node"


def is_behind(history: LogHistory, known: LogHistory) -> bool:
    """Whether a log with `history` is an earlier state of one with `known`: a slave that has not
    followed yet, or a master that was deposed and has not heard of it. A master that starts over
    has a term of its own."""
    return history.newest != known.newest and known.end_of(*history.newest) is not None


def put_history(history: LogHistory, message: broker_pb2.LogHistory) -> None:
    """Its newest MAX_TERMS terms: the older ones are rarely asked for."""
    message.log_id = history.log_id
    for term in history.terms[-MAX_TERMS:]:
        message.terms.add(epoch=term.epoch, start_offset=term.start_offset, term_id=term.term_id)


def history_of(message: broker_pb2.LogHistory) -> LogHistory:
    """Raises FormatError for terms that are no history."""
    return LogHistory(
        message.log_id,
        tuple(LogTerm(each.epoch, each.start_offset, each.term_id) for each in message.terms),
    )

"""Pulls of tandemlog's own clients: PullRequest in, the encoded PullResponse out.

The reading itself, with its rounds, its waits and its bounds, is queue_reads.py.
"""

from collections.abc import Sequence
from typing import TypeAlias

from tandemlog.format.calls import MAX_POSITIONS
from tandemlog.format.filter.expression import FilterError
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.storage.reads.results import GetStatus
from tandemlog_server.storage.stats import LatencyHistogram

from ..access.caller import Caller
from ..error_status import RequestRefusedError, check_count
from .queue_reads import QueueReads
from .raw_messages import pull_response
from .reading import Reading, Wanted

MAX_TAGS = 1_024

MAX_PARTS = 256
"""Above so many, joining them costs less than sending them one by one."""

Parts: TypeAlias = Sequence[bytes | memoryview]

_STATUS = {status: broker_pb2.PullStatus.Value(status.name) for status in GetStatus}


class PullService:
    """See the module."""

    def __init__(self, reads: QueueReads) -> None:
        self._reads = reads

    @property
    def latency(self) -> LatencyHistogram:
        """From a pull's arrival to its answer, without the wait for a message."""
        return self._reads.latency

    @property
    def waiting(self) -> int:
        """How many pulls wait for a message."""
        return self._reads.waiting

    def close(self) -> None:
        """End every wait with what there is; later pulls wait for nothing."""
        self._reads.close()

    async def pull(
        self, request: broker_pb2.PullRequest, caller: Caller, *, joined: bool = True
    ) -> Parts:
        """The encoded PullResponse, `joined` to one part or as many as were read; raises
        RequestRefusedError for what cannot be asked, and for what the node has no room for now."""
        _check_numbers(request)
        wanted = Wanted(
            request.positions,
            request.group,
            request.max_messages,
            request.max_bytes,
            request.wait_ms,
            frozenset(request.tag_hashes),
            request.filter,
        )
        try:
            return await self._reads.read(wanted, caller, _in_one if joined else _in_parts)
        except FilterError as error:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT, str(error), field="filter"
            ) from error


def _in_parts(reading: Reading) -> tuple[Parts, int]:
    """The encoded answer, and its bytes. In a reader thread."""
    head = broker_pb2.PullResponse(
        log_epoch=reading.log_epoch,
        term_id=reading.term_id,
        filtered=reading.filtered,
        suggest_slave=reading.far_behind,
    )
    queues = []
    for each in reading.queues:
        result = each.result
        small = broker_pb2.QueueRecords(
            position_index=each.index,
            status=_STATUS[result.status],
            next_offset=each.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            count=len(result.sizes),
            sizes=result.sizes.astype("<u4", copy=False).tobytes(),
        )
        queues.append((small, result.records))
    parts: Parts = pull_response(head, queues)
    if len(parts) > MAX_PARTS:
        parts = (b"".join(parts),)
    return parts, sum(map(len, parts))


def _in_one(reading: Reading) -> tuple[Parts, int]:
    parts, size = _in_parts(reading)
    return (b"".join(parts),), size


def _check_numbers(request: broker_pb2.PullRequest) -> None:
    if not 0 < len(request.positions) <= MAX_POSITIONS:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT,
            f"positions must name 1..{MAX_POSITIONS} queues",
            field="positions",
            limit=MAX_POSITIONS,
            actual=len(request.positions),
        )
    check_count("tag_hashes", len(request.tag_hashes), MAX_TAGS)
    if request.max_messages < 0 or request.max_bytes < 0:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT,
            "max_messages and max_bytes must not be negative",
            field="max_messages" if request.max_messages < 0 else "max_bytes",
        )

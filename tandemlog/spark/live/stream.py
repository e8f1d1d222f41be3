"""format("tandemlog") as a stream: the driver's side of every micro-batch.

    initialOffset            once, kept for the reader's life; with groupId also by the cluster
    latestOffset(start)      what is there, as much of it as the options admit
    partitions(start, end)   spans of queues, checked, as tasks
    commit(end)              one batch late: the group's progress, for people to look at

Spark asks for the first offset twice, and again after a restart when the first batch was planned
and not committed. It does not keep it for a source in Python. So a start that moves with time
(latest, a time) has to be kept elsewhere: with the option groupId the cluster keeps it, in the
group's offsets; if a group has offsets, the stream continues there, whatever startingOffsets says.
Without groupId such a restart is an error, because the start of the first batch is lost.
"""
# Methods have the names that Spark calls.
# ruff: noqa: N802

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ..arrow.schema import Columns
from ..cluster.cluster import Cluster, judged
from ..cluster.errors import ClusterError, DataLossError, OffsetsError
from ..cluster.offsets import LATEST, Offsets, Position, Queue, from_json, to_json
from ..cluster.offsets_resolve import NOTHING, Held, lost_messages, resolve_start, spans_of
from ..cluster.options import ReadOptions
from ..newer_spark import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from .admission import Gate, share_bytes, share_rows
from .partition import LivePartition, pulling_of, read_partition
from .plan import plan

logger = logging.getLogger(__name__)

Json = dict[str, Any]


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. `cluster` is asked by the driver's reader only; tasks have another one."""

    def __init__(
        self, options: ReadOptions, columns: Columns, cluster: Cluster | None = None
    ) -> None:
        self._options = options
        self._pulling = pulling_of(options, columns)
        self._cluster = cluster or Cluster(options.cluster, options.selection)
        self._gate = Gate(options.admission)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._held: dict[Queue, Held] | None = None
        self._newest: Offsets = {}
        self._asked_for_latest = False

    def getDefaultReadLimit(self) -> ReadLimit:
        admission = self._options.admission
        if admission.max_rows is not None:
            return ReadMaxRows(admission.max_rows)
        if admission.max_bytes is not None:
            return ReadMaxBytes(admission.max_bytes)
        if admission.min_rows is not None:
            return ReadMinRows(admission.min_rows)
        return ReadAllAvailable()

    def initialOffset(self) -> Json:
        if self._initial is None:
            self._initial = self._first_offsets()
            logger.info("the stream starts at %s", to_json(self._initial))
        return to_json(self._initial)

    def _first_offsets(self) -> Offsets:
        held = self._cluster.held(self._cluster.queues())
        group = self._options.group
        kept = self._cluster.committed(group, held) if group is not None else {}
        rest = {queue: each for queue, each in held.items() if queue not in kept}
        if not rest:
            return kept
        position = self._options.start or Position(everywhere=LATEST)
        if kept and position.everywhere is None:
            # The option names every queue, also those at which the group stands already.
            rest = held
        sure = self._cluster.sure
        with judged(sure=sure):
            found = resolve_start(
                position,
                rest,
                self._cluster.at_time,
                strategy=self._options.time_strategy,
                fail_on_data_loss=self._options.fail_on_data_loss or not sure,
            )
        if group is not None:
            self._cluster.commit(
                group, {queue: found[queue] for queue in found if queue not in kept}
            )
        return found | kept

    def prepareForTriggerAvailableNow(self) -> None:
        self.initialOffset()  # first: messages may come between the two
        self._target = _ends(self._cluster.held(self._initial or ()))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        self._asked_for_latest = True
        starts = from_json(start)
        held = self._held = self._cluster.held(starts)
        ends = self._newest = self._not_before(starts, _ends(held))
        if self._target is not None:
            ends = self._within(self._target, starts, ends)
        # A queue that is new here begins at the first message that it holds.
        begins = {queue: starts.get(queue, held.get(queue, NOTHING).first) for queue in ends}
        if not isinstance(limit, ReadAllAvailable):
            ends = self._admitted(begins, ends)
        return to_json(ends)

    @staticmethod
    def _within(target: Offsets, starts: Offsets, ends: Offsets) -> Offsets:
        """The ends up to the target; queues that it does not know are not begun."""
        return {
            queue: max(min(end, target.get(queue, 0)), starts.get(queue, 0))
            for queue, end in ends.items()
            if queue in target or queue in starts
        }

    def _not_before(self, starts: Offsets, ends: Offsets) -> Offsets:
        """The ends, but none before its start: without a master the nodes that answer may be
        behind. If the master confirms that, the log was cut."""
        behind = sorted(queue for queue, end in ends.items() if end < starts.get(queue, 0))
        if not behind:
            return ends
        if not self._cluster.sure:
            return {queue: max(end, starts.get(queue, 0)) for queue, end in ends.items()}
        topic, queue_id = first = behind[0]
        text = (
            f"{topic}/{queue_id} ends at {ends[first]}, the stream has read up to "
            f"{starts[first]}: the log was cut"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text}. failOnDataLoss=false continues at the end")
        logger.warning("data lost: %s", text)
        return ends

    def _admitted(self, starts: Offsets, ends: Offsets) -> Offsets:
        admission = self._options.admission
        now_ms = time.monotonic() * 1000
        if self._target is None and not self._gate.opens(starts, ends, now_ms):
            return {queue: starts[queue] for queue in ends}
        if admission.max_rows is not None:
            ends = share_rows(starts, ends, admission.max_rows)
        if admission.max_bytes is not None:
            waiting = {queue: starts[queue] for queue, end in ends.items() if starts[queue] < end}
            sizes = self._cluster.mean_sizes(waiting)
            ends = share_bytes(starts, ends, admission.max_bytes, sizes)
        return ends

    def reportLatestOffset(self) -> Json | None:
        return to_json(self._newest) if self._newest else None

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        starts, ends = from_json(start), from_json(end)
        self._check_replay(starts)
        held, self._held = self._held, None
        if held is None:
            held = self._cluster.held(ends)
        begins = {queue: starts.get(queue, held.get(queue, NOTHING).first) for queue in ends}
        spans = spans_of(begins, ends, strict=False)
        lost = lost_messages(spans, held)
        if lost and self._options.fail_on_data_loss and self._cluster.sure:
            raise DataLossError(f"{'; '.join(lost)}; failOnDataLoss=false reads what is left")
        for text in lost:
            logger.warning("data lost: %s", text)
        return [
            LivePartition(number, group)
            for number, group in enumerate(plan(spans, self._options.partitioning))
        ]

    def _check_replay(self, starts: Offsets) -> None:
        """That the first batch is not planned again from another start than the first time."""
        position = self._options.start or Position(everywhere=LATEST)
        moves = position.everywhere == LATEST or LATEST in (position.offsets or {}).values()
        kept = self._options.group is not None
        if moves and not kept and not self._asked_for_latest and starts == self._initial:
            raise OffsetsError(
                "the query was stopped while its first batch was on the way, and where that began "
                "is not known any more: startingOffsets=latest is somewhere else now. Name a "
                "groupId, under which the cluster keeps it, and start with a new checkpoint"
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._pulling, partition)

    def commit(self, end: Json) -> None:
        if self._options.group is None:
            return
        try:
            self._cluster.commit(self._options.group, from_json(end))
        except ClusterError as error:
            # The checkpoint has the truth; the next commit says the same and more.
            logger.warning("the progress of group %s is late: %s", self._options.group, error)


def _ends(held: Mapping[Queue, Held]) -> Offsets:
    return {queue: each.end for queue, each in held.items()}

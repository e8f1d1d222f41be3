"""format("tandemlog") as a stream: the driver's side of every micro-batch.

    initialOffset            once, kept for the reader's life; with groupId also by the cluster
    latestOffset(start)      the end of the next batch: what the queues hold, up to the limits
    partitions(start, end)   spans of queues, checked, as tasks
    commit(end)              one batch late: the group's progress, for people to see

Spark asks for the first offset twice, and again after a restart if the first batch was planned but
not committed. It does not keep it for a source in Python, and a start that moves with time (latest,
earliest, a time) is somewhere else by then. So the end of the first batch, which Spark does keep,
says where that batch began (stream_offset.py). With the option groupId the cluster keeps it too, in
the group's offsets, for a new checkpoint: if a group has offsets, the stream continues there,
whatever startingOffsets says.

Messages that the stream should have read and cannot are a loss, also in a queue that it never read:
a queue that appears later is read from 0 on, and what retention has deleted of it is lost.

An offset is a number in one log. After a failover that lost messages, in a restored backup, or on
another cluster, other messages have these numbers. So the history of the log is kept beside the
offsets, and each trigger first has the master compare them: a queue that was cut below its offset
is a loss, and is read from the first message behind the cut on, so that no message is skipped.
"""
# Methods have the names that Spark calls.
# ruff: noqa: N802

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tandemlog.cluster.histories import PositionCheck
from tandemlog.format.files.log_history import LogHistory, id_text
from tandemlog.logs.view_columns import Columns

from ..cluster.cluster_errors import ClusterError, DataLossError, OffsetsError
from ..cluster.live_cluster import TRIES, Cluster, in_one_term, judged
from ..cluster.live_options import ReadOptions
from ..cluster.queue_offsets import LATEST, Offsets, Position, Queue, to_json
from ..cluster.resolve_offsets import NOTHING, Held, lost_messages, resolve_start, spans_of
from ..cluster.stream_offset import StreamOffset
from ..newer_spark import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from .admission import Gate, share_bytes, share_rows
from .partition_plan import ANY_NUMBER, QUEUES, plan
from .partition_read import LivePartition, read_partition

logger = logging.getLogger(__name__)

_ON_FROM_CUT: Final = (
    "continues with the first of the other messages, and a new checkpoint starts where "
    "startingOffsets says"
)
_NAMED: Final = 5
"""Queues in one sentence."""
CHECK_TOPICS_S: Final = 10.0
"""How often the stream checks that its topics still exist."""

Json = dict[str, Any]


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. `cluster` is asked by the driver's reader only; tasks have another one."""

    def __init__(
        self, options: ReadOptions, columns: Columns, cluster: Cluster | None = None
    ) -> None:
        self._options = options
        self._columns = columns
        self._cluster = cluster or Cluster(options.cluster, options.selection)
        self._gate = Gate(options.admission)
        self._initial: StreamOffset | None = None
        self._target: Offsets | None = None
        self._held: dict[Queue, Held] | None = None
        self._newest: Offsets = {}
        self._asked_for_latest = False
        self._topics_checked_s = float("-inf")
        self._missing_topic: str | None = None

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
            (offsets, committed), history = in_one_term(self._cluster, self._first_offsets)
            group, new = self._options.group, offsets.keys() - committed.keys()
            if group is not None and new:
                self._cluster.commit(group, {queue: offsets[queue] for queue in new}, history)
            self._initial = StreamOffset(offsets, history, first=True)
            logger.info("the stream starts at %s", self._initial.to_json())
        return self._initial.to_json()

    def _first_offsets(self) -> tuple[Offsets, Offsets]:
        """Where the stream starts, and the offsets among these that the group has committed."""
        held = self._cluster.held(self._cluster.queues())
        group = self._options.group
        committed = self._cluster.committed(group, held) if group is not None else {}
        rest = {queue: each for queue, each in held.items() if queue not in committed}
        if not rest:
            return committed, committed
        position = self._options.start or Position(everywhere=LATEST)
        if self._target is not None and position.everywhere == LATEST:
            # the next trigger reads messages that came since this one began
            ends = _ends(rest)
            return {q: min(self._target.get(q, 0), ends[q]) for q in rest} | committed, committed
        if committed and position.everywhere is None:
            # The option names every queue, also those that the group has offsets of.
            rest = held
        sure = self._cluster.sure
        with judged(sure=sure):
            starts = resolve_start(
                position,
                rest,
                self._cluster.at_time,
                strategy=self._options.time_strategy,
                fail_on_data_loss=self._options.fail_on_data_loss or not sure,
            )
        return starts | committed, committed

    def prepareForTriggerAvailableNow(self) -> None:
        # startingOffsets does not matter: a query with a checkpoint continues from that
        self._target = _ends(self._cluster.held(self._cluster.queues()))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        self._asked_for_latest = True
        before = StreamOffset.from_json(start)
        self._check_topics(before.offsets)
        observed = self._held_and_log(before)
        if observed is None:
            if self._target is not None:
                raise ClusterError(
                    "there is no master now, and no other node says that its log is the one that "
                    "the stream has read: start the query again once the cluster has a master"
                )
            return start
        held, log = observed
        self._held = held
        if log.cut:
            self._report_loss(cut_text(before, log), _ON_FROM_CUT)
        starts = before.offsets | dict(log.cut)
        ends = self._newest = self._not_before(starts, _ends(held))
        if self._target is not None:
            ends = self._within(self._target, starts, ends)
        begins = self._begins(starts, ends, held)
        if not isinstance(limit, ReadAllAvailable):
            admitted = self._admitted(begins, ends)
            if admitted is None:
                return start
            ends = admitted
        if ends == before.offsets and not log.cut:
            return start
        not_at_start = {
            queue: begin
            for queue, begin in begins.items()
            if before.first or begin != before.offsets.get(queue)
        }
        cut = {queue: before.offsets[queue] - offset for queue, offset in log.cut.items()}
        history = log.history if log.history.terms else None
        return StreamOffset(ends, history, not_at_start, cut).to_json()

    def _held_and_log(self, before: StreamOffset) -> tuple[dict[Queue, Held], PositionCheck] | None:
        """What the queues hold, and the log of these offsets: no other term began between the two
        reads. None: no node knows now, so there is no batch."""
        last = before.history
        for _ in range(TRIES):
            held = self._cluster.held(before.offsets)
            check = None
            if self._cluster.sure:
                check = self._cluster.check(before.offsets, before.history)
            if check is None:
                # Too old to know. Or without a master: slaves may only continue the same log.
                if not self._cluster.sure and before.history is not None:
                    if not self._cluster.is_of(before.history):
                        return None
                    return held, PositionCheck(before.history)
                return held, PositionCheck(LogHistory())
            if last is not None and last.newest == check.history.newest:
                return held, check
            last = check.history
        return None

    def _check_topics(self, starts: Offsets) -> None:
        """Now and then, that no topic was deleted: its messages may stay readable for long."""
        now_s = time.monotonic()
        if now_s - self._topics_checked_s < CHECK_TOPICS_S:
            return
        self._topics_checked_s = now_s
        missing = self._cluster.missing_topic(sorted({topic for topic, _ in starts}))
        if missing is not None and missing != self._missing_topic:
            self._report_loss(
                f"{missing} any more, and the stream reads it: it was deleted",
                "continues without it until there is a topic of this name again",
            )
        self._missing_topic = missing

    def _report_loss(self, text: str, instead: str) -> None:
        """Raise DataLossError, or only warn with failOnDataLoss=false, which does `instead`."""
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text}; failOnDataLoss=false {instead}")
        logger.warning("data lost: %s", text)

    def _begins(self, starts: Offsets, ends: Offsets, held: Mapping[Queue, Held]) -> Offsets:
        """Where a batch up to `ends` begins in each queue: where the one before has ended, or at 0
        in a new queue; at the first message of a new queue if earlier ones are given up."""
        begins: Offsets = {}
        for queue, end in ends.items():
            first = held.get(queue, NOTHING).first
            begins[queue] = min(starts.get(queue, 0), end)
            if queue not in starts and first and self._cluster.sure:
                self._report_loss(
                    f"{queue[0]}/{queue[1]} is new for the stream, which has read nothing of it, "
                    f"and begins at {first}: the messages 0..{first} are gone",
                    "reads what is left",
                )
                begins[queue] = min(first, end)
        return begins

    @staticmethod
    def _within(target: Offsets, starts: Offsets, ends: Offsets) -> Offsets:
        """The ends, up to the target; without new queues that are not in it."""
        return {
            queue: max(min(end, target.get(queue, 0)), starts.get(queue, 0))
            for queue, end in ends.items()
            if queue in target or queue in starts
        }

    def _not_before(self, starts: Offsets, ends: Offsets) -> Offsets:
        """The ends, at least the start of each queue: without a master the nodes that answer may be
        behind. If the master confirms an end before its start, the log was cut."""
        behind = sorted(queue for queue, end in ends.items() if end < starts.get(queue, 0))
        if not behind:
            return ends
        if not self._cluster.sure:
            return {queue: max(end, starts.get(queue, 0)) for queue, end in ends.items()}
        topic, queue_id = first = behind[0]
        self._report_loss(
            f"{topic}/{queue_id} ends at {ends[first]}, the stream has read up to "
            f"{starts[first]}: the log was cut",
            "continues at the end",
        )
        return ends

    def _admitted(self, starts: Offsets, ends: Offsets) -> Offsets | None:
        """None: no batch yet."""
        admission = self._options.admission
        now_ms = time.monotonic() * 1000
        if self._target is None and not self._gate.opens(starts, ends, now_ms):
            return None
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
        before, until = StreamOffset.from_json(start), StreamOffset.from_json(end)
        if until.first:
            return []  # no message has come since the stream started
        if until.begins is None:
            self._check_replay(before.offsets)
        held, self._held = self._held, None
        planned_before = held is None
        if held is None:
            held = self._cluster.held(until.offsets)
        begins = before.offsets | dict(until.begins or {})
        ends = until.offsets
        if planned_before and until.history is not None:
            ends = self._still_there(until)
        spans = spans_of(begins, ends, strict=False)
        lost = lost_messages(spans, held) + _starts_behind_ends(begins, until.offsets)
        if lost and self._cluster.sure:
            self._report_loss("; ".join(lost), "reads what is left")
        queues = ANY_NUMBER if until.begins is None else QUEUES
        groups = plan(spans, self._options.partitioning, queues)
        history = until.history
        return [LivePartition(number, group, history) for number, group in enumerate(groups)]

    def _still_there(self, until: StreamOffset) -> Offsets:
        """The ends of a batch that was planned before a restart. Where the log was cut below them
        since, it ends at the cut, and the next batch continues from there."""
        check = self._cluster.check(until.offsets, until.history)
        if check is None or not check.cut:
            return until.offsets
        self._report_loss(cut_text(until, check), _ON_FROM_CUT)
        return until.offsets | dict(check.cut)

    def _check_replay(self, starts: Offsets) -> None:
        """Check that the first batch of an older version's checkpoint, which does not say where it
        began, is not planned again from another start than the first time."""
        position = self._options.start or Position(everywhere=LATEST)
        moves = position.everywhere == LATEST or LATEST in (position.offsets or {}).values()
        initial = self._initial.offsets if self._initial is not None else None
        first = not self._asked_for_latest and starts == initial
        if moves and first and self._options.group is None:
            raise OffsetsError(
                "the query was stopped while its first batch was on the way, and where that began "
                "is not known any more: startingOffsets=latest is somewhere else now. Name a "
                "groupId, under which the cluster keeps it, and start with a new checkpoint"
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._columns, partition)

    def commit(self, end: Json) -> None:
        if self._options.group is None:
            return
        try:
            until = StreamOffset.from_json(end)
            self._cluster.commit(self._options.group, until.offsets, until.history)
        except ClusterError as error:
            # The checkpoint is what counts; the next commit stores these offsets or later ones.
            logger.warning("the progress of group %s is late: %s", self._options.group, error)


def _ends(held: Mapping[Queue, Held]) -> Offsets:
    return {queue: each.end for queue, each in held.items()}


def cut_text(before: StreamOffset, log: PositionCheck) -> str:
    """The sentence about offsets that have other messages in the log as it is now."""
    rows = sum(before.offsets[queue] - offset for queue, offset in log.cut.items())
    places = [
        f"{topic}/{queue_id} was read up to {before.offsets[topic, queue_id]}, and has other "
        f"messages from {offset} on"
        for (topic, queue_id), offset in sorted(log.cut.items())[:_NAMED]
    ]
    more = f", and {len(log.cut) - _NAMED} queues more" if len(log.cut) > _NAMED else ""
    why = "the log was cut: a failover lost messages, or the store was restored from a backup"
    history = before.history
    if history is not None and history.cut_against(log.history) == 0:
        why = (
            f"the checkpoint is of another log ({id_text(history.log_id)}, this one is "
            f"{id_text(log.history.log_id)}): another cluster, or a new store"
        )
    return f"{why}. {'; '.join(places)}{more}. The stream has read {rows} of what is not there"


def _starts_behind_ends(begins: Offsets, ends: Offsets) -> list[str]:
    """A sentence for each queue in which a batch that was planned before would begin behind its
    end: the start has moved with what the queue holds."""
    return [
        f"{queue[0]}/{queue[1]}: the batch ends at {end}, and the first message left is {begin}"
        for queue, begin in sorted(begins.items())
        if (end := ends.get(queue, begin)) < begin
    ]

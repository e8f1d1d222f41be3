"""Topics with messages in a fake cluster, for the live source; and a Cluster of plain values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fakes.fake_cluster import ThreadedCluster
from tandemlog import Producer, ProducerOptions
from tandemlog.cluster.histories import PositionCheck
from tandemlog.format.files.log_history import NO_CUT, LogHistory, LogTerm
from tandemlog.spark.cluster.cluster_errors import ClusterError
from tandemlog.spark.cluster.live_options import ClusterOptions
from tandemlog.spark.cluster.queue_offsets import Offsets, Queue
from tandemlog.spark.cluster.resolve_offsets import NOTHING, Held


def cluster_options(running: ThreadedCluster, **more: Any) -> ClusterOptions:
    return ClusterOptions(tuple(running.endpoints), **{"retry_timeout_ms": 5_000} | more)


def produce(
    running: ThreadedCluster, topic: str, queue_id: int, bodies: Sequence[bytes], **columns: object
) -> None:
    with Producer(running.endpoints, ProducerOptions(batch_bytes=4_000)) as producer:
        producer.send_many(topic, list(bodies), queues=queue_id, **columns)  # type: ignore[arg-type]


class PlainCluster:
    """Stands in for live_cluster.Cluster: what queues hold is what a test says."""

    def __init__(self, held: Mapping[Queue, Held]) -> None:
        self.now = dict(held)
        self.sure = True
        self.groups: dict[str, Offsets] = {}
        self.sizes: dict[Queue, float] = {}
        self.times: dict[int, Offsets] = {}
        self.broken = False
        self.deleted: str | None = None
        self.history: LogHistory | None = None
        self.slaves: LogHistory | None = None
        self.cut: Offsets = {}

    def begin_log(self, number: int, *terms: tuple[int, int], **cut: int) -> None:
        """The log now is another one, or goes on in another way: its terms are (epoch, start), and
        a queue has other messages from there on: cut t0=5."""
        named = tuple(LogTerm(epoch, start, 100 * number + epoch) for epoch, start in terms)
        self.history = LogHistory(number, named)
        self.cut = {(name[0], int(name[1:])): offset for name, offset in cut.items()}

    def check(
        self, positions: Mapping[Queue, int], history: LogHistory | None
    ) -> PositionCheck | None:
        if self.history is None or not self.sure:
            return None
        cut = {}
        if history is not None and history.cut_against(self.history) < NO_CUT:
            cut = {
                queue: self.cut[queue]
                for queue, offset in positions.items()
                if offset > self.cut.get(queue, offset)
            }
        return PositionCheck(self.history, cut)

    def is_of(self, history: LogHistory) -> bool:
        assert self.slaves is not None
        return self.slaves.newest == history.newest

    def grow(self, **ends: int) -> None:
        """Messages come: grow(t0=20) moves the end of t/0 to 20."""
        for name, end in ends.items():
            queue = (name[0], int(name[1:]))
            self.now[queue] = Held(self.now.get(queue, NOTHING).first, end, 1_000)

    def queues(self) -> list[Queue]:
        return sorted(self.now)

    def held(self, queues: Iterable[Queue] = ()) -> dict[Queue, Held]:
        return dict.fromkeys(queues, NOTHING) | self.now

    def missing_topic(self, topics: Sequence[str]) -> str | None:
        return f"there is no topic {self.deleted}" if self.deleted in topics else None

    def at_time(self, queues: Sequence[Queue], time_ms: int) -> Offsets:
        return {queue: self.times[time_ms][queue] for queue in queues}

    def committed(self, group: str, queues: Iterable[Queue]) -> Offsets:
        stands = self.groups.get(group, {})
        return {queue: stands[queue] for queue in queues if queue in stands}

    def commit(
        self, group: str, offsets: Mapping[Queue, int], history: LogHistory | None = None
    ) -> None:
        if self.broken:
            raise ClusterError("no master")
        found = self.check(offsets, history)
        gone = found.cut if found is not None else {}
        taken = {queue: offset for queue, offset in offsets.items() if queue not in gone}
        self.groups.setdefault(group, {}).update(taken)
        if gone:
            raise ClusterError("the log was cut")

    def mean_sizes(self, starts: Mapping[Queue, int]) -> dict[Queue, float]:
        return {queue: self.sizes[queue] for queue in starts}

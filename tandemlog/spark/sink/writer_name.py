"""The name under which a task writes: the same for every attempt at the same rows.

    stream   producer  <query id>:<partition>       epoch  batch id
    batch    producer  <job id>:<partition>         epoch  0, or what the user numbers runs with

A query's id is in its checkpoint, and a planned batch has its number and partitions before it runs.
So a task that Spark runs again, at once or after a restart of the driver, writes under the name of
the first attempt, and the master acknowledges what it has stored already without storing it again.
A task of an older batch is refused as soon as a newer one has written.

The query must produce the same rows of a partition in the same order. It does so for this source,
files and Kafka; after a shuffle, sort within the partitions.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark import TaskContext

from ..cluster.cluster_errors import SinkError

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a stream. They are not public API."""


@dataclass(frozen=True, slots=True)
class WriterName:
    """`producer_id` None: a repeated write is not recognised (at least once). `partition` is the
    task's."""

    producer_id: str | None
    epoch: int
    partition: int

    def of_partition(self, partition: int) -> str:
        """The producer that writes another partition of the same job or query."""
        assert self.producer_id is not None
        return f"{self.producer_id.rpartition(':')[0]}:{partition}"


def partition_of_task() -> int:
    """The partition that this process writes; 0 outside of a task."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def batch_writer_name(job_id: str, epoch: int, partition: int) -> WriterName:
    return WriterName(f"{job_id}:{partition}", epoch, partition)


def stream_writer_name(local_property: Callable[[str], str | None], partition: int) -> WriterName:
    """From the task's local properties. Raises SinkError if they lack the query and the batch: then
    no repeated write could be recognised, which is not what exactly_once means."""
    query, batch = local_property(QUERY_ID), local_property(BATCH_ID)
    if not query or not batch or not batch.isdigit():
        raise SinkError(
            f"Spark does not tell this task its query and batch ({QUERY_ID}={query}, "
            f"{BATCH_ID}={batch}), so a repetition could not be recognised: "
            "deliveryGuarantee=at_least_once writes without"
        )
    return WriterName(f"{query}:{partition}", int(batch), partition)


def local_property_of_task() -> Callable[[str], str | None]:
    """For stream_writer_name, within a task."""
    context = TaskContext.get()
    if context is None:
        return lambda name: None
    return context.getLocalProperty

"""What can go wrong between Spark and a cluster."""

from tandemlog.logs.job_errors import PipelineError


class ClusterError(PipelineError):
    """The cluster cannot be reached, or refuses what was asked: no such topic, no such queue."""


class OffsetsError(PipelineError):
    """Offsets or times that a queue does not have; names the queue and what it holds."""


class DataLossError(PipelineError):
    """Messages that were to be read are no longer there. With failOnDataLoss=false reading
    continues behind them."""


class SinkSchemaError(PipelineError):
    """Columns of which the sink cannot make messages."""


class SinkError(PipelineError):
    """Some rows of a partition were not acknowledged."""


class RowError(SinkError):
    """A row of which the sink cannot make a message; `row` counts within its chunk."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row} of its chunk: {reason}")
        self.row = row
        self.reason = reason

    def __reduce__(self) -> tuple[type["RowError"], tuple[int, str]]:
        return type(self), (self.row, self.reason)


class RepeatMismatchError(SinkError):
    """A partition is written again, with other rows or in other chunks than the first time."""

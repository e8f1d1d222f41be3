"""Tells the real end of a task's rows from an input that breaks off.

    JVM ──▶ batch ─ batch ─ batch ─ END_OF_STREAM        these were all
    JVM ──▶ batch ─ batch ─ end of file                  the query failed upstream, or its JVM died

Arrow reads both as the end of the rows. The last chunk of a cut input would be shorter than the one
that the next attempt makes of the same number, and no attempt could ever continue from there. So
the last rows are passed on only after Spark's own end mark has arrived. No public API shows the
mark: it is in the stream from which PySpark's worker feeds this task, found among its frames.
"""

import io
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from ..cluster.cluster_errors import SinkError

if TYPE_CHECKING:
    from types import FrameType

RowsT = TypeVar("RowsT")

_WORKER: Final = "invoke_udf"
_STREAM: Final = "input_data_stream"


def complete(
    batches: Iterator[RowsT], stream_of: Callable[[], io.BufferedReader | None]
) -> Iterator[RowsT]:
    """The same batches. Raises SinkError in the place of their end where it is none."""
    yield from batches
    stream = stream_of()
    if stream is None:
        raise SinkError(
            "Spark's worker does not show where its input ends, so the end could not be told from "
            "a failure: deliveryGuarantee=at_least_once writes without"
        )
    # Waits for the mark, or for the end of file.
    if not stream.peek(1):
        raise SinkError("the rows stopped coming before their end: what makes them has failed")


def input_of_task() -> io.BufferedReader | None:
    """What Spark's worker reads the rows of the running task from."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == _WORKER:
            stream = frame.f_locals.get(_STREAM)
            return stream if isinstance(stream, io.BufferedReader) else None
        frame = frame.f_back
    return None

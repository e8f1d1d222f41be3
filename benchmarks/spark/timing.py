"""What the benchmarks of Spark share."""

import time
from collections.abc import Callable

from pyspark.sql import DataFrame

MB = 1_000_000
RUNS = 3


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def noop(frame: DataFrame) -> None:
    """All rows to Spark's sink that does nothing with them."""
    frame.write.format("noop").mode("overwrite").save()

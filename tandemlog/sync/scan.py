"""A scan without asyncio: a pyarrow.RecordBatchReader, which every library for columns can read.

The loop's thread fetches ahead; batches are decoded in the thread that reads. When the reader is at
its end, closed or forgotten, so is the scan.
"""

import asyncio
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..consume.columns import as_arrow
from ..consume.scan import AsyncScan
from .loop_thread import LoopThread

if TYPE_CHECKING:
    import pyarrow as pa


def reader_of(thread: LoopThread, scan: AsyncScan) -> "pa.RecordBatchReader":
    """The batches of `scan`, which runs in the loop of `thread`."""
    arrow = importlib.import_module("pyarrow")
    reader: pa.RecordBatchReader = arrow.RecordBatchReader.from_batches(
        scan.schema, _batches(thread, scan)
    )
    return reader


def _batches(thread: LoopThread, scan: AsyncScan) -> Iterator["pa.RecordBatch"]:
    try:
        while window := thread.run(scan.next_window()):
            yield as_arrow(window, scan.schema)
    finally:
        # not waited for: a reader that is forgotten may be collected in any thread, the loop's too
        asyncio.run_coroutine_threadsafe(scan.close(), thread.loop)

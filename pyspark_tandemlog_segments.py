"""Spark imports this module by its name and finds the format `tandemlog_segments` in it.

Spark imports every top-level `pyspark_*` module at once when it meets an unknown format, so this
one must be cheap, and must not fail because of something that another format needs.
"""

from tandemlog.spark.segments.segment_source import SegmentDataSource as DefaultSource

__all__ = ["DefaultSource"]

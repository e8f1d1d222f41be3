"""Interfaces that older versions of PySpark do not have.

Stand-ins make the modules of a source importable: its other parts work, and what needs the
interface is refused before it is used (spark_version.py).
"""

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # before 4.1
    from pyspark.sql.datasource import (  # type: ignore[assignment]
        DataSourceStreamWriter as DataSourceStreamArrowWriter,
    )

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before 4.2

    class ReadLimit:  # type: ignore[no-redef]
        """How much of a stream a batch takes."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """That a stream can end."""

    ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadMinRows = ReadLimit  # type: ignore[assignment,misc]

__all__ = [
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]

"""Found by Spark itself: what makes format("tandemlog") known without a registration.

Spark imports every module named pyspark_* when it meets an unknown format, and one that fails to
import would take all the others with it. So if a library is missing, or PySpark has an unsupported
version, there is still a source here, which raises that error once it is used.
"""

from pyspark.sql.datasource import DataSource

from tandemlog.spark.spark_version import version_fault

try:
    from tandemlog.spark.live.live_source import LiveDataSource as DefaultSource
except ImportError as missing:
    _REASON = version_fault() or str(missing)

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        """Stands in for the source where something that it needs is not installed."""

        @classmethod
        def name(cls) -> str:
            return "tandemlog"

        def schema(self) -> str:
            raise ImportError(
                f"format tandemlog: {_REASON}; install it with pip install 'tandemlog[spark]'"
            )


__all__ = ["DefaultSource"]

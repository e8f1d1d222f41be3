"""A stream that cannot be: whatever Spark asks first is answered with what is wrong.

PySpark stops a reader in the end that it never got: an error in streamReader itself is followed by
an UnboundLocalError of its own, which then is the last line that the user sees.
"""
# Methods have the names that Spark calls.
# ruff: noqa: N802

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tandemlog.logs.job_errors import PipelineError

from ..newer_spark import ReadLimit, SupportsTriggerAvailableNow


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises `problem` before anything is planned."""

    def __init__(self, problem: PipelineError) -> None:
        self._problem = problem

    def _refuse(self) -> NoReturn:
        raise self._problem from None

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # without arguments before 4.2
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        self._refuse()

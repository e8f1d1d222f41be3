"""One Spark for all tests that need one: to start it takes longer than most of them."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    session: Any = pytest.importorskip("pipeline.session", reason="Spark is not installed")
    made = session.spark_session("tests", "local[2]", session.Profile.TEST)
    yield made
    made.stop()

import inspect

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

from fakes.live_topics import PlainCluster
from tandemlog.logs.job_errors import OptionError
from tandemlog.spark.cluster.cluster_errors import ClusterError, DataLossError, OffsetsError
from tandemlog.spark.cluster.live_options import Use
from tandemlog.spark.cluster.option_reading import read_options
from tandemlog.spark.cluster.resolve_offsets import Held
from tandemlog.spark.live.live_batch import LiveBatchReader
from tandemlog.spark.live.live_schema import LIVE
from tandemlog.spark.live.live_source import LiveDataSource
from tandemlog.spark.spark_schema import spark_schema

GIVEN = {"endpoint": "a", "topic": "t"}


def reader(plain: PlainCluster, **options: str) -> LiveBatchReader:
    return LiveBatchReader(read_options(GIVEN | options, Use.BATCH), LIVE, plain)  # type: ignore[arg-type]


def spans(found: LiveBatchReader) -> list[list[str]]:
    return [[str(span) for span in each.spans] for each in found.partitions()]  # type: ignore[attr-defined]


def plain() -> PlainCluster:
    return PlainCluster({("t", 0): Held(2, 10, 9), ("t", 1): Held(0, 5, 9), ("t", 2): Held()})


def test_everything_there_is_by_default() -> None:
    assert spans(reader(plain())) == [["t/0 2..10", "t/1 0..5"]]


def test_between_two_places() -> None:
    found = reader(
        plain(),
        startingOffsets='{"t": {"0": 4, "1": -2, "2": -2}}',
        endingOffsets='{"t": {"0": 6, "1": -1, "2": -1}}',
    )
    assert spans(found) == [["t/0 4..6", "t/1 0..5"]]


def test_between_two_times() -> None:
    cluster = plain()
    cluster.times = {
        3: {("t", 0): 4, ("t", 1): 1, ("t", 2): 0},
        7: {("t", 0): 9, ("t", 1): 1, ("t", 2): 0},
    }
    found = reader(cluster, startingTimestamp="3", endingTimestamp="7")
    assert spans(found) == [["t/0 4..9"]]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"startingOffsets": '{"t": {"0": 1, "1": 0, "2": 0}}'}, DataLossError),
        ({"endingOffsets": '{"t": {"0": 11, "1": 0, "2": 0}}'}, OffsetsError),
        (
            {
                "startingOffsets": '{"t": {"0": 5, "1": 0, "2": 0}}',
                "endingOffsets": '{"t": {"0": 4, "1": 0, "2": 0}}',
            },
            OffsetsError,
        ),
    ],
)
def test_places_that_are_not_there(options: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error, match="t/0"):
        reader(plain(), **options).partitions()


def test_no_filter_is_taken_over_from_spark() -> None:
    assert LiveBatchReader.pushFilters is DataSourceReader.pushFilters


def test_without_a_master_nothing_is_judged_to_be_gone() -> None:
    cluster = plain()
    cluster.sure = False
    assert spans(reader(cluster)) == [["t/0 2..10", "t/1 0..5"]]
    for side in ("startingOffsets", "endingOffsets"):
        for lenient in ("true", "false"):
            places = {side: '{"t": {"0": 12, "1": -1, "2": -1}}', "failOnDataLoss": lenient}
            with pytest.raises(ClusterError, match="there is no master now"):
                reader(cluster, **places).partitions()


def test_the_partition_that_spark_makes_up_is_empty() -> None:
    assert list(reader(plain()).read(None)) == []  # type: ignore[arg-type]


def test_the_source_has_the_methods_that_spark_calls_by_keyword() -> None:
    for name in ("reader", "streamReader"):
        assert list(inspect.signature(getattr(LiveDataSource, name)).parameters) == [
            "self",
            "schema",
        ]
    for name in ("writer", "streamWriter"):
        parameters = inspect.signature(getattr(LiveDataSource, name)).parameters
        assert list(parameters) == ["self", "schema", "overwrite"]


def test_the_schema_follows_the_columns() -> None:
    source: DataSource = LiveDataSource(GIVEN | {"columns": "body,tags"})
    assert source.schema() == spark_schema({"body": "binary", "tags": "string"})
    assert LiveDataSource({}).schema() == spark_schema(LIVE)


def test_a_log_is_not_overwritten() -> None:
    source = LiveDataSource(GIVEN)
    with pytest.raises(OptionError, match="append"):
        source.writer(source.schema(), overwrite=True)
    with pytest.raises(OptionError, match="append"):
        source.streamWriter(source.schema(), overwrite=True)

import inspect
import pickle

import pytest
from pyspark.sql.datasource import DataSource, EqualTo

from fakes.live_topics import PlainCluster
from pipeline.errors import OptionError
from pipeline.live import LiveDataSource
from pipeline.live_batch import FilteringBatchReader, LiveBatchReader
from pipeline.live_errors import DataLossError, OffsetsError
from pipeline.live_options import Use, read_options
from pipeline.live_schema import LIVE
from pipeline.offsets_resolve import Held
from pipeline.schema import spark_schema

GIVEN = {"endpoint": "a", "topic": "t"}


def reader(plain: PlainCluster, **options: str) -> LiveBatchReader:
    read = read_options(GIVEN | options, Use.BATCH)
    kind = FilteringBatchReader if read.pushdown else LiveBatchReader
    return kind(read, LIVE, plain)  # type: ignore[arg-type]


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


def test_filters_are_for_the_reader_that_says_so() -> None:
    assert "pushFilters" not in vars(LiveBatchReader)
    narrowed = reader(plain(), pushdown="true")
    rest = narrowed.pushFilters([EqualTo(("queue_id",), 1), EqualTo(("keys",), "k")])
    assert list(rest) == [EqualTo(("keys",), "k")]
    assert spans(narrowed) == [["t/1 0..5"]]
    assert spans(pickle.loads(pickle.dumps(narrowed))) == [["t/1 0..5"]]


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

from pathlib import Path

import pytest

from tandemlog.cluster.topology import ReadFrom
from tandemlog.logs.job_errors import OptionError
from tandemlog.spark.cluster.live_options import Guarantee, Strategy, Use
from tandemlog.spark.cluster.option_reading import chosen_columns, read_options, write_options
from tandemlog.spark.cluster.queue_offsets import EARLIEST, LATEST, Position
from tandemlog.transport.security import Security

ONE = {"endpoint": "a:1", "topic": "orders"}


def test_little_is_needed_and_the_rest_has_defaults() -> None:
    options = read_options(ONE, Use.BATCH)
    assert options.cluster.endpoint == ("a:1",)
    assert options.selection.topics == ("orders",)
    assert (options.start, options.end, options.tags) == (None, None, None)
    assert options.read_from is ReadFrom.SLAVE
    assert options.fail_on_data_loss


def test_names_have_any_case_as_spark_hands_them_over_in_lower() -> None:
    options = read_options(ONE | {"PULLBYTES": "2m", "maxoffsetspertrigger": "7"}, Use.STREAM)
    assert options.pull_bytes == 2 << 20
    assert options.admission.max_rows == 7


@pytest.mark.parametrize("name", ["endpoint", "endpoints", "nameServers"])
def test_the_servers_have_other_names_too(name: str) -> None:
    options = read_options({name: "a:1;b", "topic": "t"}, Use.BATCH)
    assert options.cluster.endpoint == ("a:1", "b:10911")


KAFKA = {"kafka.bootstrap.servers": "a:1,b:2"}


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"subscribe": "a,b"}, {"topics": "a,b"}),
        ({"subscribePattern": "a.*"}, {"topicsPattern": "a.*"}),
        ({"assign": '{"a": [0, 1]}'}, {"assign": '{"a": [0, 1]}'}),
        (
            {
                "subscribe": "a",
                "startingOffsets": '{"a": {"0": 23, "1": -2}}',
                "kafkaConsumer.pollTimeoutMs": "7",
                "maxOffsetsPerTrigger": "9",
                "minPartitions": "3",
                "failOnDataLoss": "false",
            },
            {
                "topic": "a",
                "startingOffsets": '{"a": {"0": 23, "1": -2}}',
                "pullTimeoutMs": "7",
                "maxOffsetsPerTrigger": "9",
                "minPartitions": "3",
                "failOnDataLoss": "false",
            },
        ),
    ],
)
def test_kafkas_names_mean_what_they_mean_there(
    given: dict[str, str], same: dict[str, str]
) -> None:
    ours = read_options({"endpoint": "a:1,b:2"} | same, Use.STREAM)
    assert read_options(KAFKA | given, Use.STREAM) == ours
    assert write_options(KAFKA | {"topic": "t"}, stream=True).cluster == ours.cluster


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kafka.group.id", "the option here is groupId"),
        ("groupIdPrefix", "groupId names one"),
        ("includeHeaders", "the column properties"),
        ("kafka.acks", "waitForCluster"),
        ("kafka.max.poll.records", "pullBytes"),
        ("fetchOffset.numRetries", "retryTimeoutMs"),
        ("kafka.transactional.id", "idempotencyId"),
        ("kafka.security.protocol", "caFile, .* token and tokenFile"),
        ("kafka.ssl.truststore.location", "caFile"),
        ("kafka.sasl.jaas.config", "token and tokenFile"),
        ("kafka.metrics.num.samples", "docs/pipeline.md has all options"),
    ],
)
@pytest.mark.parametrize("use", [Use.BATCH, Use.WRITE])
def test_kafkas_other_names_are_answered_with_those_here(name: str, words: str, use: Use) -> None:
    given = KAFKA | {"topic": "t", name: "1"}
    with pytest.raises(OptionError, match=f"option {name.lower()} is one of Kafka's: .*{words}"):
        read_options(given, use) if use is Use.BATCH else write_options(given, stream=False)
    with pytest.raises(OptionError, match=words):
        chosen_columns(given)


def test_one_thing_under_two_names() -> None:
    with pytest.raises(OptionError, match="endpoint is given twice"):
        read_options(ONE | KAFKA, Use.BATCH)
    with pytest.raises(OptionError, match="given: topic, topics"):
        read_options(ONE | {"subscribe": "t"}, Use.BATCH)


@pytest.mark.parametrize(
    ("given", "topics", "pattern", "assigned"),
    [
        ({"topic": "a"}, ("a",), None, {}),
        ({"topics": "a, b,a"}, ("a", "b"), None, {}),
        ({"topicsPattern": "a.*"}, (), "a.*", {}),
        ({"assign": '{"a": [1, 0]}'}, (), None, {"a": (0, 1)}),
    ],
)
def test_selection(
    given: dict[str, str],
    topics: tuple[str, ...],
    pattern: str | None,
    assigned: dict[str, tuple[int, ...]],
) -> None:
    selection = read_options({"endpoint": "a"} | given, Use.BATCH).selection
    assert selection.topics == topics
    assert selection.pattern == pattern
    assert selection.assigned == assigned


@pytest.mark.parametrize(
    ("given", "position"),
    [
        ({"startingOffsets": "earliest"}, Position(everywhere=EARLIEST)),
        ({"startingOffsets": "LATEST"}, Position(everywhere=LATEST)),
        (
            {"startingOffsets": '{"t": {"0": 5, "1": -2}}'},
            Position(offsets={("t", 0): 5, ("t", 1): -2}),
        ),
        ({"startingTimestamp": "1700000000000"}, Position(time=1_700_000_000_000)),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 9}}'}, Position(times={("t", 0): 9})),
    ],
)
def test_where_to_start(given: dict[str, str], position: Position) -> None:
    assert read_options(ONE | given, Use.BATCH).start == position


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250", 250), ("250ms", 250), ("2s", 2_000), ("15m", 900_000), ("1 h", 3_600_000)],
)
def test_durations(text: str, ms: int) -> None:
    options = read_options(ONE | {"maxTriggerDelay": text}, Use.STREAM)
    assert options.admission.max_delay_ms == ms


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topik": "a"}, ["topik", "topic"]),
        ({"nonsense": "a"}, ["nonsense", "pullBytes"]),
        ({"topics": "b"}, ["exactly one", "topic, topics"]),
        ({"pullBytes": "0"}, ["pullBytes", "between 1"]),
        ({"pullBytes": "much"}, ["pullBytes", "much"]),
        ({"minPartitions": "-1"}, ["minPartitions"]),
        ({"minPartitions": "3", "maxPartitions": "2"}, ["minPartitions", "maxPartitions"]),
        ({"failOnDataLoss": "yes"}, ["failOnDataLoss", "true or false"]),
        ({"readFrom": "moon"}, ["readFrom", "master or slave or any"]),
        ({"startingOffsets": "newest"}, ["startingOffsets", "earliest or latest"]),
        ({"startingOffsets": "{"}, ["startingOffsets"]),
        ({"startingOffsets": '{"orders": {"x": 1}}'}, ["startingOffsets", "'x'", "queue id"]),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, ["orders/0", "-3"]),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, ["contradict"]),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, ["endingOffsets", "earliest"]),
        ({"groupId": "a b"}, ["groupId", "' '"]),
        ({"tags": "||"}, ["tags"]),
        ({"where": "amount >"}, ["where", "character 9"]),
        ({"maxOffsetsPerTrigger": "5"}, ["maxOffsetsPerTrigger", "a stream", "a batch read"]),
        ({"deliveryGuarantee": "exactly_once"}, ["deliveryGuarantee", "a write"]),
        ({"endpoints": "b"}, ["endpoint", "twice"]),
    ],
)
def test_a_mistake_is_one_error_that_names_it(given: dict[str, str], words: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        read_options(ONE | given, Use.BATCH)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("missing", "word"), [("endpoint", "endpoint"), ("topic", "exactly one of")]
)
def test_what_is_needed_is_asked_for(missing: str, word: str) -> None:
    with pytest.raises(OptionError, match=word):
        read_options({name: ONE[name] for name in ONE if name != missing}, Use.BATCH)


def test_a_stream_has_no_end_and_a_batch_no_triggers() -> None:
    with pytest.raises(OptionError, match="endingOffsets is for a batch read"):
        read_options(ONE | {"endingOffsets": "latest"}, Use.STREAM)


def test_the_time_strategy() -> None:
    options = read_options(ONE | {"startingOffsetsByTimestampStrategy": "latest"}, Use.BATCH)
    assert options.time_strategy is Strategy.LATEST


def test_every_tag_is_no_filter() -> None:
    assert read_options(ONE | {"subExpression": "*"}, Use.BATCH).tags is None
    assert read_options(ONE | {"tags": "a || b"}, Use.BATCH).tags == "a || b"


def test_write_options() -> None:
    options = write_options(
        {
            "endpoint": "a",
            "deliveryGuarantee": "at_least_once",
            "batchMessages": "10",
            "checkpointLocation": "/tmp/x",
        },
        stream=True,
    )
    assert options.topic is None
    assert options.guarantee is Guarantee.AT_LEAST_ONCE
    assert options.batch_messages == 10


def test_a_stream_is_known_by_its_checkpoint_alone() -> None:
    given = {"endpoint": "a", "idempotencyId": "nightly"}
    assert write_options(given, stream=False).idempotency_id == "nightly"
    with pytest.raises(OptionError, match="checkpoint"):
        write_options(given, stream=True)
    numbered = write_options(given | {"idempotencyEpoch": "3"}, stream=False)
    assert numbered.idempotency_epoch == 3
    with pytest.raises(OptionError, match="give both"):
        write_options({"endpoint": "a", "idempotencyEpoch": "3"}, stream=False)


@pytest.mark.parametrize("name", ["with space", "x" * 58, ""])
def test_a_writers_name_has_room_for_the_partition(name: str) -> None:
    with pytest.raises(OptionError, match="idempotencyId"):
        write_options({"endpoint": "a", "idempotencyId": name}, stream=False)


def test_the_schema_hears_of_wrong_names_first() -> None:
    assert chosen_columns({"columns": "body, tags"}) == ("body", "tags")
    assert chosen_columns({}) is None
    with pytest.raises(OptionError, match="columnz"):
        chosen_columns({"columnz": "body"})


def test_pushdown_is_gone_and_it_is_said_why() -> None:
    given = {"endpoint": "a", "topic": "t", "pushdown": "true"}
    for read in (lambda: read_options(given, Use.BATCH), lambda: chosen_columns(given)):
        with pytest.raises(OptionError, match="every other use of the same DataFrame"):
            read()


def test_how_the_cluster_lets_the_job_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clusters.toml").write_text('[prod]\nendpoint = "p:1"\nca_file = "/ca"\n')
    monkeypatch.setenv("TANDEMLOG_CONFIG_DIR", str(tmp_path))
    given = {"cluster": "prod", "tokenFile": "/token", "topic": "t"}
    options = read_options(given, Use.BATCH).cluster
    assert options.endpoint == ("p:1",)
    assert options.security == Security(ca_file="/ca", token_file="/token")
    written = write_options(ONE | {"token": "tl_secret", "caFile": "/other"}, stream=True)
    assert written.cluster.security == Security(ca_file="/other", token="tl_secret")
    assert "tl_secret" not in repr(written)
    monkeypatch.setenv("TANDEMLOG_TOKEN", "tl_env")
    assert read_options(ONE, Use.BATCH).cluster.security == Security(token="tl_env")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"certFile": "/c"}, "options of the connection: key_file is missing"),
        ({"cluster": "gone"}, "options of the connection: cluster 'gone': .* does not exist"),
        ({"token": "tl_secret\nx"}, "options of the connection: token: it must be one line"),
    ],
)
def test_options_of_the_connection_that_cannot_be(
    given: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANDEMLOG_CONFIG_DIR", str(tmp_path))
    with pytest.raises(OptionError, match=words) as refused:
        read_options(ONE | given, Use.BATCH)
    assert "tl_secret" not in str(refused.value)

"""Headers of pulls, offsets and queries, read; and the codes of a pull's answer."""

import pytest

from tandemlog.format.constants import NO_END
from tandemlog.format.errors import FormatError
from tandemlog.format.java_hash import java_hash
from tandemlog_server.rocketmq.clients.offset_requests import (
    read_commit,
    read_offset_query,
    read_queue,
    read_search,
)
from tandemlog_server.rocketmq.clients.pull_requests import (
    DEFAULT_BYTES,
    EVERYTHING,
    Narrowing,
    PullRequest,
    SubscriptionError,
    narrowing,
    pull_code,
    read_pull,
    reader_of,
)
from tandemlog_server.rocketmq.clients.query_requests import read_key_query, read_position
from tandemlog_server.rocketmq.clients.read_fields import flag, integer
from tandemlog_server.storage.reads.results import GetStatus

PUSH = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "3",
    "queueOffset": "17",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "9",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1700000000000",
    "expressionType": "TAG",
}


def test_a_push_consumer_parks_and_has_the_subscription_of_its_group() -> None:
    assert read_pull(PUSH) == PullRequest(
        "g", "t", 3, 17, 32, DEFAULT_BYTES, 15_000, None, None, "TAG", 1_700_000_000_000, False
    )


@pytest.mark.parametrize(
    ("sys_flag", "field", "value"),
    [
        (1, "commit_offset", 9),
        (0, "commit_offset", None),
        (0, "wait_ms", 0),
        (4, "wait_ms", 0),
        (6, "wait_ms", 15_000),
        (4, "subscription", "a || b"),
        (2, "subscription", None),
        (8, "class_filter", True),
        (16, "class_filter", False),
    ],
)
def test_the_bits_of_sys_flag(sys_flag: int, field: str, value: object) -> None:
    asked = read_pull({**PUSH, "sysFlag": str(sys_flag), "subscription": "a || b"})
    assert getattr(asked, field) == value


def test_numbers_that_make_no_sense_are_taken_for_the_least() -> None:
    asked = read_pull(
        {**PUSH, "maxMsgNums": "0", "maxMsgBytes": "-1", "suspendTimeoutMillis": "-5"}
    )
    assert (asked.max_messages, asked.max_bytes, asked.wait_ms) == (1, DEFAULT_BYTES, 0)


@pytest.mark.parametrize("name", ["consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums"])
def test_a_pull_without_a_field_is_refused_by_its_name(name: str) -> None:
    fields = {key: value for key, value in PUSH.items() if key != name}
    with pytest.raises(FormatError, match=name):
        read_pull(fields)


@pytest.mark.parametrize("value", ["x", "1.5", "9223372036854775808", "1" * 5_000])
def test_what_is_no_number_of_64_bits_is_refused(value: str) -> None:
    with pytest.raises(FormatError, match="queueOffset"):
        read_pull({**PUSH, "queueOffset": value})


def test_a_number_may_have_a_smaller_range() -> None:
    with pytest.raises(FormatError, match="queueId"):
        read_pull({**PUSH, "queueId": "2147483648"})
    assert integer({}, "n", 5) == 5


def test_truth_values_come_as_texts() -> None:
    assert flag({"f": "true"}, "f")
    assert not flag({"f": "false"}, "f", default=True)
    assert flag({}, "f", default=True)


@pytest.mark.parametrize("expression", ["", "*"])
def test_no_tags_are_all_tags(expression: str) -> None:
    assert narrowing(expression, "TAG") == EVERYTHING


def test_tags_are_known_by_javas_hash() -> None:
    assert narrowing("a || b|| a", "TAG") == Narrowing(frozenset({java_hash("a"), java_hash("b")}))


def test_sql92_is_a_condition() -> None:
    assert narrowing("a > 5", "SQL92") == Narrowing(condition="a > 5")


@pytest.mark.parametrize(
    ("expression", "kind", "why"),
    [
        ("||", "TAG", "has no tag"),
        (" ", "SQL92", "no condition"),
        ("x", "CLASS", "knows TAG and SQL92"),
        ("||".join(map(str, range(1_025))), "TAG", "1025 tags"),
    ],
)
def test_subscriptions_that_mean_nothing(expression: str, kind: str, why: str) -> None:
    with pytest.raises(SubscriptionError, match=why):
        narrowing(expression, kind)


@pytest.mark.parametrize(
    ("status", "offset", "following", "of_master", "of_slave"),
    [
        (GetStatus.FOUND, 5, 7, 0, 0),
        (GetStatus.NO_MATCHED_MESSAGE, 5, 7, 20, 20),
        (GetStatus.MESSAGE_WAS_REMOVING, 5, 7, 20, 20),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 19, 19),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 19, 19),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 5, 0, 21, 20),
        (GetStatus.OFFSET_FOUND_NULL, 5, 20, 19, 19),
        (GetStatus.OFFSET_OVERFLOW_ONE, 5, 5, 19, 19),
        # a filter has passed 5 and 6
        (GetStatus.OFFSET_OVERFLOW_ONE, 5, 7, 20, 20),
        (GetStatus.OFFSET_OVERFLOW_BADLY, 9, 5, 21, 20),
        (GetStatus.OFFSET_TOO_SMALL, 1, 5, 21, 20),
    ],
)
def test_codes_are_those_of_a_broker(
    status: GetStatus, offset: int, following: int, of_master: int, of_slave: int
) -> None:
    assert pull_code(status, offset, following, on_slave=False) == of_master
    assert pull_code(status, offset, following, on_slave=True) == of_slave


def test_queues_are_spread_over_the_slaves_the_same_on_every_node() -> None:
    chosen = [reader_of("t", queue, (1, 2)) for queue in range(64)]
    assert set(chosen) == {1, 2}
    assert chosen == [reader_of("t", queue, (1, 2)) for queue in range(64)]
    assert reader_of("t", 0, (3,)) == 3


def test_requests_for_offsets() -> None:
    fields = {"consumerGroup": "g", "topic": "t", "queueId": "2"}
    assert read_queue(fields).queue_id == 2
    assert read_offset_query(fields).zero
    assert not read_offset_query({**fields, "setZeroIfNotFound": "false"}).zero
    assert read_commit({**fields, "commitOffset": "40"}).queue_offset == 40
    with pytest.raises(FormatError, match="commitOffset"):
        read_commit(fields)
    search = read_search({**fields, "timestamp": "12", "boundaryType": "upper"})
    assert (search.timestamp, search.upper) == (12, True)
    assert not read_search({**fields, "timestamp": "12"}).upper


def test_requests_for_messages_by_key() -> None:
    fields = {"topic": "t", "key": "k", "maxNum": "1000", "beginTimestamp": "0"}
    asked = read_key_query({**fields, "endTimestamp": "9223372036854775807"})
    assert (asked.max_messages, asked.end_timestamp, asked.tags) == (64, NO_END, False)
    assert read_key_query({**fields, "_UNIQUE_KEY_QUERY": "true"}).max_messages == 32
    assert read_key_query({**fields, "indexType": "T"}).tags
    assert read_position({"offset": "7"}) == 7
    with pytest.raises(FormatError, match="key"):
        read_key_query({"topic": "t"})

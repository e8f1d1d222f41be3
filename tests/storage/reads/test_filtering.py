import pytest

from tandemlog.format.filter.parser import parse
from tandemlog_server.storage.reads.filtering import (
    FILTERED_BYTES,
    LEAST_BYTES,
    LEAST_MESSAGES,
    Filtering,
)

HEAVY = parse(" OR ".join(["a CONTAINS 'x'"] * 400))


def test_a_usual_filter_looks_at_more_than_may_be_returned() -> None:
    filtering = Filtering.of(parse("a > 5 AND b = 'x' AND c IN ('y')"), 1, 100)
    assert (filtering.max_messages, filtering.max_bytes) == (1, 100)
    assert filtering.examined_bytes == FILTERED_BYTES
    assert filtering.examined_messages > 8_000
    assert Filtering.of(parse("a > 5"), 0, 8 << 20).examined_bytes == 8 << 20


def test_a_heavy_filter_looks_at_less_and_always_at_something() -> None:
    filtering = Filtering.of(HEAVY, 0, 8 << 20)
    assert LEAST_MESSAGES <= filtering.examined_messages < 100
    assert LEAST_BYTES <= filtering.examined_bytes < 100_000
    pattern = "_" * 8_000
    assert Filtering.of(parse(f"b LIKE '{pattern}'"), 0, 1).examined_messages >= LEAST_MESSAGES


@pytest.mark.parametrize(("messages", "size"), [(0, 0), (1_000, 1_000), (10, 8 << 20)])
def test_more_weight_more_messages_and_more_bytes_cost_more(messages: int, size: int) -> None:
    light = Filtering.of(parse("a > 5"), 0, 1)
    cost = light.cost(messages, size)
    assert Filtering.of(HEAVY, 0, 1).cost(messages, size) > cost
    assert light.cost(messages + 100, size) > cost
    assert light.cost(messages, size + 100_000) > cost

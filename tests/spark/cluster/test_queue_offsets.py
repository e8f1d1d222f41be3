import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.consume.reading.span_progress import QueueSpan
from tandemlog.spark.cluster.queue_offsets import (
    from_json,
    parse_assignment,
    parse_offsets,
    parse_times,
    to_json,
)

QUEUES = st.tuples(st.sampled_from(["a", "b-c", "%RETRY%g"]), st.integers(0, 40))


@given(st.dictionaries(QUEUES, st.integers(0, 1 << 62)))
def test_a_checkpoint_gives_back_what_it_was_given(offsets: dict[tuple[str, int], int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


def test_equal_offsets_are_equal_text() -> None:
    one = to_json({("b", 1): 1, ("a", 10): 2, ("a", 9): 3})
    other = to_json({("a", 9): 3, ("b", 1): 1, ("a", 10): 2})
    assert json.dumps(one) == json.dumps(other)


@pytest.mark.parametrize(
    "value",
    [None, [], {}, {"a": {}}, {"a": [1]}, {"a": {"0": "1"}}, {"a": {"0": True}}, {"a b": {"0": 1}}],
)
def test_what_is_no_offsets(value: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_offsets(value)


def test_times_are_never_negative() -> None:
    assert parse_times({"a": {"0": 0}}) == {("a", 0): 0}
    with pytest.raises(ValueError, match="time"):
        parse_times({"a": {"0": -1}})


@pytest.mark.parametrize("value", [{"a": []}, {"a": {"0": 1}}, {"a": [0, 0]}, {"a": [-1]}])
def test_what_is_no_assignment(value: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_assignment(value)


def test_a_span_tells_itself() -> None:
    assert str(QueueSpan("t", 3, 5, 9)) == "t/3 5..9"
    assert QueueSpan("t", 3, 5, 9).count == 4

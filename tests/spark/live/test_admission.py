from hypothesis import given
from hypothesis import strategies as st

from tandemlog.spark.cluster.live_options import Admission
from tandemlog.spark.live.admission import Gate, share_bytes, share_rows

LAGS = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 9)), st.integers(0, 1000), min_size=1
)


@given(LAGS, st.integers(1, 3000))
def test_rows_are_shared_out_to_the_last_one(lags: dict[tuple[str, int], int], limit: int) -> None:
    starts = dict.fromkeys(lags, 7)
    ends = {queue: 7 + lag for queue, lag in lags.items()}
    shared = share_rows(starts, ends, limit)
    given_rows = {queue: shared[queue] - 7 for queue in lags}
    assert all(0 <= given_rows[queue] <= lags[queue] for queue in lags)
    assert sum(given_rows.values()) == min(limit, sum(lags.values()))


@given(LAGS, st.integers(1, 50))
def test_repeated_shares_reach_the_end(lags: dict[tuple[str, int], int], limit: int) -> None:
    at, rounds = dict.fromkeys(lags, 0), 0
    while at != lags:
        at = share_rows(at, lags, limit)
        rounds += 1
    assert rounds == -(-sum(lags.values()) // limit)


def test_a_queue_with_more_gives_more() -> None:
    ends = {("t", 0): 900, ("t", 1): 100}
    assert share_rows({}, ends, 100) == {("t", 0): 90, ("t", 1): 10}


def test_bytes_become_rows_by_the_mean_size() -> None:
    ends = {("t", 0): 1000, ("t", 1): 1000}
    sizes = {("t", 0): 100.0, ("t", 1): 300.0}
    assert share_bytes({}, ends, 1 << 30, sizes) == ends
    shared = share_bytes({}, ends, 40_000, sizes)
    assert shared == {("t", 0): 100, ("t", 1): 100}


def test_one_message_at_least_however_large() -> None:
    shared = share_bytes({}, {("t", 0): 10}, 1, {("t", 0): 1e6})
    assert shared == {("t", 0): 1}


def test_the_gate_waits_for_rows_or_time() -> None:
    gate = Gate(Admission(min_rows=10, max_delay_ms=1_000))
    assert gate.opens({}, {("t", 0): 1}, 0.0)
    assert not gate.opens({("t", 0): 1}, {("t", 0): 10}, 500.0)
    assert gate.opens({("t", 0): 1}, {("t", 0): 11}, 600.0)
    assert not gate.opens({("t", 0): 11}, {("t", 0): 12}, 1_500.0)
    assert gate.opens({("t", 0): 11}, {("t", 0): 12}, 1_600.0)


def test_without_a_least_number_it_is_open() -> None:
    gate = Gate(Admission())
    assert gate.opens({}, {("t", 0): 1}, 0.0)
    assert gate.opens({}, {("t", 0): 1}, 0.0)

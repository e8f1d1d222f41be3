"""Rings of a fixed length: rates, gaps, counters that begin again."""

from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.node.console.history import (
    FINE_PLACES,
    MEMBERS,
    TOPICS,
    History,
    Look,
    Ring,
    TopicHistory,
)


def look(puts: float, **members: tuple[int, int]) -> Look:
    return Look({"puts": puts}, {"behind": 7.0}, members)


def test_rates_are_differences() -> None:
    history = History()
    for second in range(4):
        history.put(second, look(second * 100))
    assert history.read(3)["puts/s"][-4:] == [None, 100.0, 100.0, 100.0]
    assert history.read(3)["behind"][-2:] == [7.0, 7.0]


def test_a_pause_is_a_gap_and_its_rate_is_a_mean() -> None:
    history = History()
    history.put(0, look(0))
    history.put(10, look(100))
    assert history.read(12)["puts/s"][-4:] == [None, 10.0, None, None]


def test_a_counter_that_began_again() -> None:
    history = History()
    history.put(0, look(500))
    history.put(1, look(30))
    assert history.read(1)["puts/s"][-1] == 30.0


def test_members_have_their_log_and_lag() -> None:
    history = History()
    history.put(0, look(0, n0=(1_000, 0), n1=(400, 600)))
    history.put(2, look(0, n0=(3_000, 0), n1=(100, 2_900)))
    plots = history.read(2)
    assert plots["log n0/s"][-1] == 1_000.0
    assert plots["log n1/s"][-1] == 0.0  # its log was cut
    assert plots["lag n1"][-1] == 2_900.0


def test_a_lag_that_no_master_measures_is_a_gap() -> None:
    history = History()
    for second in range(2):
        history.put(second, Look({}, {}, {"n0": (second * 50, None)}))
    assert history.read(1)["lag n0"][-2:] == [None, None]
    assert history.read(1)["log n0/s"][-1] == 50.0


def test_names_of_members_do_not_fill_the_memory() -> None:
    history = History()
    for number in range(200):
        history.put(number, look(0, **{f"n{number}": (1, 1)}))
    assert sum(name.startswith("lag ") for name in history.read(200)) == MEMBERS


def test_the_coarse_ring_has_means() -> None:
    history = History()
    for second in range(61):
        history.put(second, look(second * (10 if second <= 30 else 20)))
    assert history.read(60, coarse=True)["behind"][-2:] == [7.0, 7.0]


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 1e12)), max_size=80))
def test_a_ring_shows_the_last_value_of_each_step(rows: list[tuple[int, float]]) -> None:
    ring = Ring(1.0, FINE_PLACES)
    now, known = 0, {}
    for step, value in rows:
        now += step
        ring.put(now, value)
        known[now] = round(value, 3)
    values = ring.read(now)
    assert values == [known.get(each) for each in range(now - FINE_PLACES + 1, now + 1)]


def test_topics_with_traffic_have_rings_and_the_others_rates() -> None:
    topics = TopicHistory()
    names = [f"t{number}" for number in range(TOPICS + 50)]
    for turn in range(3):
        topics.put(
            turn * 5.0,
            {name: (turn * (index + 1) * 5, 0, 0, 0) for index, name in enumerate(names)},
        )
    assert topics.seen.rates["t9"][0] == 10.0
    found = topics.seen.plots(10, names)
    assert len(found) == TOPICS
    assert "t0" not in found
    assert found[names[-1]][0][-1] == float(len(names))
    topics.put(15, {names[-1]: (1_000_000, 0, 0, 0)})
    assert set(topics.seen.plots(15, names)) == {names[-1]}


def test_what_was_seen_of_topics_does_not_change_under_its_reader() -> None:
    topics = TopicHistory()
    for turn in range(3):
        topics.put(turn * 5.0, {"a": (turn * 50, 0, 0, 0)})
    seen = topics.seen
    plots = seen.plots(10, ["a", "b"])
    topics.put(10.5, {"a": (1_000, 0, 0, 0), "b": (1_000, 0, 0, 0)})
    topics.put(15, {"b": (2_000, 0, 0, 0)})
    assert (seen.rates, seen.plots(10, ["a", "b"])) == ({"a": [10.0, 0, 0, 0]}, plots)
    assert set(topics.seen.rates) == set(topics.seen.rings) == {"b"}


def test_reading_a_ring_later_changes_nothing() -> None:
    ring = Ring(5.0, 3)
    for step in range(3):
        ring.put(step * 5, step)
    assert ring.read(24) == [2, None, None]
    assert ring.read(1_000) == [None] * 3
    assert ring.read(10) == [0, 1, 2]

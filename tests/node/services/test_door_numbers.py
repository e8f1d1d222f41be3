"""What is counted at a door, bounded by this program's own names."""

from tandemlog_server.node.services.door_numbers import RequestCounts


def test_requests_are_counted_by_name_and_result() -> None:
    counts = RequestCounts({10: "SEND"}, {0: "SUCCESS", 1: "SYSTEM_ERROR"})
    for result in (0, 0, 1):
        counts.count(10, result)
    assert counts.numbers() == {("SEND", "SUCCESS"): 2, ("SEND", "SYSTEM_ERROR"): 1}


def test_what_a_stranger_makes_up_is_one_row() -> None:
    counts = RequestCounts({10: "SEND"}, {0: "SUCCESS"})
    for code in range(100, 5_000):
        counts.count(code, code)
    counts.count(10, 0)
    assert counts.numbers() == {("other", "other"): 4_900, ("SEND", "SUCCESS"): 1}

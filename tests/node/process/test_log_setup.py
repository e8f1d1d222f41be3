"""What callers do at will does not fill the log."""

import logging

from node.process.log_setup import SeldomLines


def record(problem: Exception | None = None) -> logging.LogRecord:
    info = (type(problem), problem, None) if problem is not None else None
    return logging.LogRecord("grpc", logging.ERROR, "", 0, "a call of %s failed", ("Pull",), info)


def test_a_line_comes_once_in_a_while_and_says_how_many_were_left_out() -> None:
    now = 100.0
    seldom = SeldomLines(10.0, lambda: now)
    first = record(ValueError("x" * 10_000))
    assert seldom.filter(first)
    assert first.exc_info is None
    assert first.getMessage().startswith("a call of Pull failed: xxx")
    assert len(first.getMessage()) < 300
    assert [seldom.filter(record()) for _ in range(3)] == [False] * 3
    now += 10
    later = record()
    assert seldom.filter(later)
    assert later.getMessage() == "a call of Pull failed (3 more since the last line)"

"""What a line of the log looks like, and that callers cannot fill it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tandemlog_server.node.process.log_setup import SeldomLines, set_up_logging


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


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """The stream for the root logger, which is as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_name_who_logs_what_and_when(logged: io.StringIO) -> None:
    set_up_logging("info", node_id="n1", cluster_id="orders", form="json", stream=logged)
    log = logging.getLogger("node.some.part")
    log.debug("not this one")
    log.info("started: %s\nsecond line", "é")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it ends", extra={"offset": 7})
    first, second = map(json.loads, logged.getvalue().splitlines())
    assert list(first) == ["time", "level", "node", "cluster", "logger", "message"]
    assert first["message"] == "started: é\nsecond line"
    assert (first["level"], first["node"], first["cluster"]) == ("info", "n1", "orders")
    assert first["logger"] == "node.some.part"
    assert first["time"][10:11] + first["time"][-1] + first["time"][-5] == "TZ."
    assert (second["level"], second["message"], second["offset"]) == ("error", "it ends", 7)
    assert second["exception"].splitlines()[-1] == "ValueError: broken"
    assert "exc_info" not in second


def test_text_lines_are_as_they_were(logged: io.StringIO) -> None:
    set_up_logging("info", node_id="n1", cluster_id="orders", stream=logged)
    logging.getLogger("node.some.part").warning("slow flush: bytes=%d", 7)
    line = logged.getvalue()
    assert line.startswith("n1 ")
    assert line.endswith(" WARNING node.some.part: slow flush: bytes=7\n")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_name_from_elsewhere_cannot_steer_a_terminal(logged: io.StringIO, form: str) -> None:
    set_up_logging("info", form=form, stream=logged)
    logging.getLogger("node").info("broker %s", "a\x9b2J\u202eb")
    assert "\\u009b2J\\u202eb" in logged.getvalue()
    assert not {"\x9b", "\u202e"} & set(logged.getvalue())

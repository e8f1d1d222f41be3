"""Logging of a node: one line an event on stderr, set up here and only here.

    text    n0 2026-05-01T12:00:00.123 INFO    node.node: started role=master …
    json    {"time": "2026-05-01T12:00:00.123Z", "level": "info", "node": "n0", …, "message": "…"}

Callers must not be able to fill the log: gRPC writes a traceback for each call that ends while its
response is sent. Such calls are logged with one line now and then.
"""

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from tandemlog.format.words import shortened, visible

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"

# Loggers of libraries that say at INFO what our own lines say better, and how often they may speak.
_QUIET = {"aiohttp.access": logging.WARNING, "asyncio": logging.WARNING, "grpc": logging.WARNING}


def set_up_logging(
    level: str,
    *,
    node_id: str = "",
    cluster_id: str = "",
    form: str = "text",
    stream: TextIO | None = None,
) -> None:
    """Send every log line of the process to `stream` (stderr); `level` is one of LEVELS, `form` one
    of FORMATS."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    prefix = f"{node_id} " if node_id else ""
    if form == "json":
        handler.setFormatter(JsonLines(node_id, cluster_id))
    else:
        handler.setFormatter(TextLines(prefix + _FORMAT, datefmt="%Y-%m-%dT%H:%M:%S"))
    logging.getLogger().handlers[:] = [handler]
    set_level(level)
    grpc_core = logging.getLogger("grpc._cython.cygrpc")
    grpc_core.filters[:] = [SeldomLines()]


def set_level(level: str) -> None:
    """Log from `level` on, one of LEVELS."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))


class TextLines(logging.Formatter):
    """For people, at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


class JsonLines(JsonFormatter):
    """One JSON object a line; docs/monitoring.md has the fields. What a caller gives as `extra`
    follows them."""

    def __init__(self, node_id: str, cluster_id: str) -> None:
        super().__init__(json_ensure_ascii=False, reserved_attrs=[*RESERVED_ATTRS, "taskName"])
        self._origin = {"node": node_id, "cluster": cluster_id}

    def format(self, record: logging.LogRecord) -> str:
        # the same escapes as JSON's: who reads it as JSON gets what was logged
        return visible(super().format(record))

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        moment = datetime.fromtimestamp(record.created, UTC)
        log_data["time"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        log_data["level"] = record.levelname.lower()
        log_data.update({name: value for name, value in self._origin.items() if value})
        log_data["logger"] = record.name
        log_data["message"] = record.getMessage()
        super().add_fields(log_data, record, message_dict)
        exception = log_data.pop("exc_info", None)
        if exception:
            log_data["exception"] = exception


class SeldomLines(logging.Filter):
    """Lets a record pass once in `seconds`, without a traceback, with how many were left out."""

    def __init__(
        self, seconds: float = 10.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._seconds = seconds
        self._monotonic = monotonic
        self._next = 0.0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._monotonic()
        if now < self._next:
            self._left_out += 1
            return False
        self._next = now + self._seconds
        if record.exc_info and record.exc_info[1] is not None:
            record.msg = f"{record.getMessage()}: {shortened(str(record.exc_info[1]), 200)}"
            record.args = ()
            record.exc_info = None
        if self._left_out:
            record.msg = f"{record.getMessage()} ({self._left_out} more since the last line)"
            record.args = ()
            self._left_out = 0
        return True

"""Logging of a node: one line an event on stderr, set up here and only here."""

import logging
import sys
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"

# Loggers of libraries that say at INFO what our own lines say better, and how often they may speak.
_QUIET = {"aiohttp.access": logging.WARNING, "asyncio": logging.WARNING, "grpc": logging.WARNING}


def set_up_logging(level: str, *, node_id: str = "", stream: TextIO | None = None) -> None:
    """Send every log line of the process to `stream` (stderr); `level` is one of LEVELS."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    prefix = f"{node_id} " if node_id else ""
    handler.setFormatter(logging.Formatter(prefix + _FORMAT, datefmt="%Y-%m-%dT%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))

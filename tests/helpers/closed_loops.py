"""What gRPC logs of an event loop that an earlier test of this process has closed.

gRPC has one completion queue for all event loops of a process. A test that ends with a call open
(a node that is killed) leaves an event in it for a loop that is closed by then; the loop of a later
test, which reads the queue too, passes the event on, is refused, and logs that with a traceback:

    first test's loop ── call ──▶ closed          second test's loop: "Event loop is closed"
                           │                                   ▲
                           └──────▶ completion queue ──────────┘

Tests that look for tracebacks would take the line for one of theirs.
"""

import logging


def _is_of_this_test(record: logging.LogRecord) -> bool:
    """The loop of the test that looks is open, so a closed loop is that of another test."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, RuntimeError) or str(error) != "Event loop is closed"


def leave_out_closed_loops() -> None:
    """For the rest of this process: no such line of asyncio reaches a test."""
    logging.getLogger("asyncio").addFilter(_is_of_this_test)

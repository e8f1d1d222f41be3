"""A web service for gunicorn --preload: each request sends a message, and answers with the process.

PRELOADED says what the master of gunicorn does before it forks: "used" clients, or has them "open".
"""

import os
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from tandemlog import Admin, Message, Producer

ENDPOINT = os.environ["ENDPOINT"]

if os.environ["PRELOADED"] == "open":
    of_the_master = Producer(ENDPOINT)
    of_the_master.send(Message("forks", b"of the master")).result(20)
with Admin(ENDPOINT) as admin:
    admin.topic("forks")


@cache
def producer() -> Producer:
    """This worker's, made at its first request."""
    return Producer(ENDPOINT)


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    producer().send(Message("forks", b"of a worker")).result(20)
    time.sleep(0.05)  # so that the other worker gets the next one
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]

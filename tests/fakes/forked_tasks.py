"""Celery's tasks for its prefork pool, over a queue of files in the folder QUEUE."""

import os
import time
from functools import cache

from celery import Celery

from tandemlog import Message, Producer

ENDPOINT, QUEUE = os.environ["ENDPOINT"], os.environ["QUEUE"]

app = Celery("tasks", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": f"{QUEUE}/queue",
    "data_folder_out": f"{QUEUE}/queue",
    "control_folder": f"{QUEUE}/control",
}
app.conf.worker_prefetch_multiplier = 1

of_the_parent = Producer(ENDPOINT)


@cache
def producer() -> Producer:
    """This process's, made by its first task."""
    return Producer(ENDPOINT)


@app.task
def send(number: int) -> None:
    message = Message("forks", str(os.getpid()).encode(), keys=f"n{number}", tags="celery")
    producer().send(message).result(20)
    time.sleep(0.2)  # so that the other process gets the next one


def ask(count: int) -> None:
    """Asks the workers for `count` messages."""
    for number in range(count):
        send.delay(number)
    of_the_parent.close()

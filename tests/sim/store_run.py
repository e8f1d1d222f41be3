"""One seed from its first step to its last check, and the shortest part of it that fails.

play(seed)        everything follows from the number: sizes, misfortunes, order
shortest(seed)    how many of its steps it takes; the checks of the end come after any of them
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sim.ha_nodes import ViolationError
from sim.store_world import StoreWorld
from tandemlog_server.storage.queues import queue_table
from tandemlog_server.storage.queues import queue_units as units
from tandemlog_server.storage.queues.consume_queue_store import ConsumeQueueStore
from tandemlog_server.storage.recovery import opening

STEPS = 150
QUEUES = 1 << 10
UNITS_BYTES = 1 << 17


@contextmanager
def small_world() -> Iterator[None]:
    """What costs time and shows nothing here: room for four million queues, lines of a log. And
    the process number, of which the length of a file depends."""
    logging.disable(logging.CRITICAL)
    try:
        with (
            patch.object(queue_table, "MAX_QUEUES", QUEUES),
            patch.object(units, "MAX_QUEUES", QUEUES),
            patch.dict(ConsumeQueueStore.__init__.__kwdefaults__, memory_bytes=UNITS_BYTES),
            patch.object(opening.os, "getpid", lambda: 4242),
        ):
            yield
    finally:
        logging.disable(logging.NOTSET)


def play(
    seed: int, steps: int = STEPS, make: Callable[[int], StoreWorld] = StoreWorld
) -> StoreWorld:
    """`make` builds the world. Raises ViolationError with the world's history."""
    with small_world():
        world = make(seed)
        try:
            world.begin()
            for number in range(steps):
                world.number = number + 1
                world.step()
            world.finish()
        except ViolationError as broken:
            raise ViolationError(f"seed {seed}: {broken}\n{world.describe()}") from broken
        return world


def shortest(seed: int) -> tuple[int, str]:
    """After how many steps the seed fails, and how."""
    steps = STEPS
    text = ""
    for tried in (0, 2, 5, 10, 15, 20, 30, 40, 60, 80, 100, 125, STEPS):
        try:
            play(seed, tried)
        except ViolationError as broken:
            steps, text = tried, str(broken)
            break
    return steps, text

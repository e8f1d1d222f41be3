"""Parked pulls while reput works in its own thread: the first message of a queue wakes them."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from fakes.inner_node import until
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.pulls.long_polling import UNKNOWN_QUEUE, LongPolling, Waiter
from tandemlog_server.node.pulls.parked_reads import ParkedReads
from tandemlog_server.node.pulls.reading import Encode, Place, Wanted
from tandemlog_server.node.pulls.waiting_places import WaitingPlaces

NEW, ANOTHER = 7, 3


@dataclass
class Begin:
    topic: str = "t"
    queue_id: int = 0
    queue_offset: int = 0


@dataclass
class Reads:
    """A queue that has no number before its first message; what is read says so."""

    dense: int = UNKNOWN_QUEUE
    end: int = 0
    closed: bool = False
    interrupts: int = 0

    def number(self, place: Place) -> int:
        return self.dense

    def at_end(self, place: Place, queue: int) -> bool:
        return (self.end if queue == self.dense and queue >= 0 else 0) == place.queue_offset

    def read_now(
        self, wanted: Wanted, caller: Caller, encode: Encode[Any], *, wait: bool = True
    ) -> Any:
        return "a message" if self.end else None

    async def read(self, wanted: Wanted, caller: Caller, encode: Encode[Any]) -> Any:
        raise AssertionError("it is in memory")


class Places(WaitingPlaces):
    """`then` happens while a pull is entered."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(9)
        self.then = then

    def take(self, holder: str, queues: int) -> None:
        super().take(holder, queues)
        self.then()


class Polling(LongPolling):
    """`then` happens once while a waiter goes over to another queue."""

    then: Callable[[], None] | None = None

    def leave(self, waiter: Waiter, queues: Collection[int]) -> None:
        super().leave(waiter, queues)
        then, self.then = self.then, None
        if then is not None:
            then()


def park(parks: ParkedReads, ends: list[tuple[Any, Exception | None]]) -> object:
    return parks.park(
        Wanted((Begin(),)),
        60_000,
        Caller("ipv4:10.0.0.7:1"),
        lambda reading: (reading, 0),
        lambda answer, problem: ends.append((answer, problem)),
    )


async def test_the_first_message_comes_while_a_pull_is_entered() -> None:
    reads, ends = Reads(), list[tuple[Any, Exception | None]]()
    polling = LongPolling(asyncio.get_running_loop(), lambda: int(reads.dense >= 0))

    def first_message() -> None:
        reads.dense, reads.end = NEW, 1
        polling.on_dispatch([NEW])  # nobody waits yet

    parks = ParkedReads(reads, polling, Places(first_message))
    assert park(parks, ends) is None, "it waits, and the message is there"
    assert polling.waiters == 0


async def test_the_first_message_comes_while_a_pull_takes_the_number() -> None:
    reads, ends, count = Reads(), list[tuple[Any, Exception | None]](), [0]
    polling = Polling(asyncio.get_running_loop(), lambda: count[0])
    parks = ParkedReads(reads, polling, WaitingPlaces(9))
    assert park(parks, ends) is not None

    def first_message() -> None:
        reads.end = 1
        polling.on_dispatch([NEW])

    polling.then = first_message
    # appended, and not dispatched; the message of another queue wakes who waits for new queues
    reads.dense, count[0] = NEW, 1
    polling.on_dispatch([ANOTHER])
    await until(lambda: bool(ends))
    assert ends == [("a message", None)]

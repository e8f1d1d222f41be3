"""The load of a chaos run: one producer, several numbered messages on their way at a time.

Messages that are not acknowledged yet when a master dies are what a retry may store twice or an
election may cut off, so there are always some. The rate is bounded: what is tested is not speed,
and all nodes share one machine.
"""

import itertools
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from chaos.checks import Place, longest_gap
from helpers.elected_nodes import Account
from helpers.running import wait_until
from tandemlog.errors import TandemlogError
from tandemlog.message import Message, SendResult
from tandemlog.sync.sync_producer import Producer
from tandemlog_server.cli.local.drills import TOPIC

PACE_S = 0.005
IN_FLIGHT = 16


class StreamLoad(Account):
    """`with` it while things happen to the nodes."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        super().__init__(list(endpoints))
        self._pending: deque[tuple[int, Future[SendResult]]] = deque()

    def places(self) -> dict[int, Place]:
        """Where the messages are that were acknowledged by now."""
        taken = self.acknowledged.copy()  # in one piece, while the other thread adds to it
        return {number: (sent.queue_id, sent.queue_offset) for number, sent in taken.items()}

    def wait_acknowledged(self, after: float, timeout_s: float) -> None:
        """Until a put is acknowledged after that moment (monotonic seconds)."""
        wait_until(
            "puts to be acknowledged again",
            lambda: bool(self.times) and self.times[-1] > after,
            timeout_s,
        )

    def gap(self, began: float, ended: float) -> float:
        """See `longest_gap`."""
        taken = list(self.times)
        first = max(0, bisect_right(taken, began) - 1)
        return longest_gap(taken[first:], began, ended)

    def _send(self) -> None:
        with Producer(self._endpoints) as producer:
            for number in itertools.count():
                if self._end.wait(PACE_S):
                    break
                try:
                    message = Message(TOPIC, str(number).encode())
                    self._pending.append((number, producer.send(message)))
                except TandemlogError as error:
                    self.failed.append(str(error))
                while len(self._pending) >= IN_FLIGHT or self._first_is_done():
                    self._note(*self._pending.popleft())
            while self._pending:
                self._note(*self._pending.popleft())

    def _first_is_done(self) -> bool:
        return bool(self._pending) and self._pending[0][1].done()

    def _note(self, number: int, sent: Future[SendResult]) -> None:
        """Wait for its answer; the producer bounds that time."""
        try:
            self.acknowledged[number] = sent.result()
        except TandemlogError as error:
            self.failed.append(str(error))
        else:
            self.times.append(time.monotonic())

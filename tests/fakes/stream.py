"""One replication stream in memory, with a network that may delay, lose and repeat.

    slave ──▶ to_master ──▶ master          each side sees the other's end only when the
          ◀── to_slave  ◀──                 network tells it: a cut is two events

Frames travel as bytes. A cut drops a random tail of what is under way, so a stream may end in the
middle of anything.
"""

from collections import deque
from random import Random


class FakeStream:
    """Owned by the test's one thread."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.to_master: deque[bytes] = deque()
        self.to_slave: deque[bytes] = deque()
        self.master_open = True
        self.slave_open = True
        self.frozen_until = 0.0

    def send_to_master(self, data: bytes) -> None:
        if self.slave_open:
            self.to_master.append(data)

    def send_to_slave(self, data: bytes) -> None:
        if self.master_open:
            self.to_slave.append(data)

    def cut(self, rng: Random) -> None:
        """The connection breaks: what is under way is lost from some frame on, on both ways."""
        for queue in (self.to_master, self.to_slave):
            for _ in range(rng.randint(0, len(queue))):
                queue.pop()
        self.master_open = self.slave_open = False

    @property
    def drained(self) -> bool:
        return not self.to_master and not self.to_slave

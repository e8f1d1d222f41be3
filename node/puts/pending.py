"""What the pump appends by one call of the store, whichever door it came in by.

    PendingPut (put_stream.py)    an AppendRequest of one stream
    JointPut (joint_put.py)       requests of RocketMQ's clients, of many connections

The writer thread calls `append`; everything else belongs to the loop.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tandemlog.v1 import common_pb2
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.puts.put_path import PutResult

from .confirm_waiters import ConfirmWaiters


class Pending(ABC):
    """See the module. `byte_size` counts for the pump's bounds; `requests` of clients are in it.
    The writer sets `epoch`, and either `result` and `appended_at` or `failure`."""

    __slots__ = ("appended_at", "byte_size", "end_offset", "epoch", "failure", "result")

    def __init__(self, byte_size: int) -> None:
        self.byte_size = byte_size
        self.appended_at = 0.0
        self.end_offset = 0
        self.epoch = 0
        self.result: PutResult | None = None
        self.failure: Exception | None = None

    @property
    def requests(self) -> int:
        return 1

    @abstractmethod
    def append(self, store: MessageStore) -> PutResult:
        """Once, in the writer thread. Raises whatever makes it a refusal."""

    def parts(self) -> Sequence["Pending"]:
        """After the store has refused it as a whole: what to append one by one in its place.
        Nothing, if the refusal is the answer."""
        return ()

    @abstractmethod
    def stored(self, waiters: ConfirmWaiters) -> bool:
        """It is in the log: answer what waits for nothing, and add the rest to `waiters`. Whether
        anything was added."""

    @abstractmethod
    def refuse_with(self, error: common_pb2.Error) -> None:
        """Nothing of it is stored."""

"""The checkpoint file: six longs at the start of 4,096 bytes, the rest zero.

     0 physic_msg_timestamp    store time of the newest durable record
     8 logics_msg_timestamp    ... whose queue unit is durable
    16 index_msg_timestamp     ... whose index entries are durable
    24 master_flushed_offset   since RocketMQ 5.0
    32 confirm_phy_offset      since RocketMQ 5.0
    40 logics_physical_offset  since RocketMQ 5.4: the queues are durable up to here

Files of older brokers have zero if a later one has a field; zero means not known.
"""

from dataclasses import astuple, dataclass
from struct import Struct
from typing import Final

CHECKPOINT_SIZE: Final = 4096
TIME_MARGIN_MS: Final = 3000
"""Records this much older than the checkpoint's times are taken as dispatched and durable."""
_LONGS: Final = Struct(">6q")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Times in ms, offsets in the commit log; see the module's picture."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """Records stored at or before this time (ms) are durable, in log and queues."""
        known = min(self.physic_msg_timestamp, self.logics_msg_timestamp)
        return max(0, known - TIME_MARGIN_MS)

    def encode(self) -> bytes:
        """The file's 4,096 bytes."""
        return _LONGS.pack(*astuple(self)).ljust(CHECKPOINT_SIZE, b"\0")


def decode_checkpoint(data: bytes | bytearray | memoryview) -> Checkpoint:
    """What the file holds; of a shorter one, what is there, and zero for the rest."""
    return Checkpoint(*_LONGS.unpack(bytes(data[: _LONGS.size]).ljust(_LONGS.size, b"\0")))

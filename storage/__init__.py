"""The store of one node: RocketMQ's files, written and read by one process, without a network.

MessageStore is the whole; its parts can be used by themselves. The tools in storage.tools work on
a store that no node has open.
"""

from .clock import Clock, SystemClock
from .config import ConfirmSource, FlushMode, RetentionConfig, StoreConfig
from .disk.files import FileSystem
from .disk.real_files import RealFileSystem
from .errors import (
    BatchRefusedError,
    CorruptStoreError,
    DiskFullError,
    FlushFailedError,
    OffsetOutOfRangeError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreLayoutError,
    StoreLockedError,
    StoreReadOnlyError,
)
from .message_store import MessageStore
from .metadata.topics import MetadataError, TopicConfig
from .positions import Position
from .puts.put_path import AppendResult
from .queues.search import Boundary
from .reads.reader import FoundRecords, GetResult, GetStatus, NoRecordError, QueueRange
from .recovery.report import RecoveryReport

__all__ = [
    "AppendResult",
    "BatchRefusedError",
    "Boundary",
    "Clock",
    "ConfirmSource",
    "CorruptStoreError",
    "DiskFullError",
    "FileSystem",
    "FlushFailedError",
    "FlushMode",
    "FoundRecords",
    "GetResult",
    "GetStatus",
    "MessageStore",
    "MetadataError",
    "NoRecordError",
    "OffsetOutOfRangeError",
    "Position",
    "QueueRange",
    "RealFileSystem",
    "RecoveryReport",
    "RetentionConfig",
    "StoreBusyError",
    "StoreClosedError",
    "StoreConfig",
    "StoreError",
    "StoreLayoutError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "SystemClock",
    "TopicConfig",
]

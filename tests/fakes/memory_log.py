"""A commit log in memory, and stores of RocketMQ read into one: what dispatch reads from."""

from collections.abc import Mapping
from pathlib import Path

from tandemlog.format.record.record import encode_blank, encode_record
from tandemlog_server.storage.errors import OffsetOutOfRangeError


class MemoryLog:
    """Records end to end in files of `file_size`; a LogPort."""

    def __init__(self, file_size: int = 1 << 16, start: int = 0) -> None:
        self.file_size = file_size
        self.min_offset = start
        self.data = bytearray()
        self.store_timestamp = 1_700_000_000_000
        self.times: dict[int, int] = {}
        self.next_queue_offsets: dict[tuple[str, int], int] = {}

    @classmethod
    def of_directory(cls, directory: Path) -> "MemoryLog":
        """The files of a commit log on disk."""
        paths = sorted(path for path in directory.iterdir() if path.name.isdecimal())
        log = cls(paths[0].stat().st_size, int(paths[0].name))
        log.data += b"".join(path.read_bytes() for path in paths)
        return log

    @property
    def end(self) -> int:
        return self.min_offset + len(self.data)

    def read(self, offset: int, max_bytes: int) -> memoryview:
        if not self.min_offset <= offset <= self.end:
            raise OffsetOutOfRangeError(offset, self.min_offset, self.end)
        at = offset - self.min_offset
        stop = min(at + max_bytes, len(self.data), at + self.file_size - offset % self.file_size)
        return memoryview(bytes(self.data[at:stop]))

    def put(
        self,
        topic: str,
        queue_id: int = 0,
        body: bytes = b"x",
        *,
        properties: Mapping[str, str] | None = None,
        sys_flag: int = 0,
        queue_offset: int | None = None,
        later_ms: int = 0,
    ) -> int:
        """Append a record; answers its offset. The store time moves on by `later_ms` first."""
        self.store_timestamp += later_ms
        counted = sys_flag & 0xC in (0, 8)
        key = (topic, queue_id)
        number = self.next_queue_offsets.get(key, 0) if queue_offset is None else queue_offset
        size = len(self._encode(topic, queue_id, body, properties, sys_flag, number, 0))
        left = self.file_size - self.end % self.file_size
        if size + 8 > left:
            self.data += encode_blank(left) + bytes(left - 8)
        offset = self.end
        self.data += self._encode(topic, queue_id, body, properties, sys_flag, number, offset)
        self.times[offset] = self.store_timestamp
        if counted:
            self.next_queue_offsets[key] = number + 1
        return offset

    def cut(self, offset: int) -> None:
        """Drop everything from `offset` on; the caller sets queue offsets right."""
        del self.data[offset - self.min_offset :]
        for each in [each for each in self.times if each >= offset]:
            del self.times[each]

    def time_of(self, offset: int) -> int:
        return self.times.get(offset, -1)

    def _encode(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: Mapping[str, str] | None,
        sys_flag: int,
        queue_offset: int,
        offset: int,
    ) -> bytes:
        return encode_record(
            topic=topic,
            body=body,
            properties=properties or {},
            queue_id=queue_id,
            sys_flag=sys_flag,
            queue_offset=queue_offset,
            physical_offset=offset,
            store_timestamp=self.store_timestamp,
        )

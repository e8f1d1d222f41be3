"""Appended bytes that have not been given to the operating system yet: the buffered mode.

    append -> | 1st | 2nd | 3rd | ... -> commit: joined where they touch, pwritten
                                         committed moves behind what was written

RocketMQ calls this the transient store pool. One thread adds, one at a time takes, so a deque needs
no further lock. Bytes of a failed write stay at the front.
"""

from collections import deque
from collections.abc import Iterator

JOINED_BYTES = 1 << 20


class WriteBuffer:
    """Stretches of the log in the order in which they were appended."""

    def __init__(self) -> None:
        self._stretches: deque[tuple[int, bytes]] = deque()

    def add(self, offset: int, data: bytes) -> None:
        self._stretches.append((offset, data))

    def __len__(self) -> int:
        return len(self._stretches)

    def take(self, file_size: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) to write, each within one file; each goes only when the next is asked
        for, so a write that raises leaves it here."""
        while self._stretches:
            offset, first = self._stretches[0]
            joined, size = [first], len(first)
            limit = min(JOINED_BYTES, file_size - offset % file_size)
            for index in range(1, len(self._stretches)):
                at, data = self._stretches[index]
                if at != offset + size or size + len(data) > limit:
                    break
                joined.append(data)
                size += len(data)
            yield offset, joined[0] if len(joined) == 1 else b"".join(joined)
            for _ in joined:
                self._stretches.popleft()

    def clear(self) -> None:
        self._stretches.clear()

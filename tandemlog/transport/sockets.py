"""Sockets of data connections: their options, and writing what consists of parts."""

import asyncio
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

_PARTS: Final = 64
_BYTES: Final = 2 << 20
"""For one call of the kernel: the loop has other work too."""
# A host that is gone without a word is noticed within 30 s, as by gRPC's pings; within 60 s (ms
# here) if it has something to acknowledge, or to take.
_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 20),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 2),
    ("TCP_USER_TIMEOUT", 60_000),
)


def prepare(sock: socket.socket) -> None:
    """For small frames that are not held back, and a host that may vanish. Raises OSError."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def send_parts(sock: socket.socket, parts: Iterable[bytes | memoryview]) -> None:
    """All of `parts`, end to end; `sock` does not block, and no other task writes to it. Raises
    OSError."""
    unsent = deque(memoryview(part) for part in parts if part)
    loop = asyncio.get_running_loop()
    while unsent:
        parts_now = _next_parts(unsent)
        try:
            sent = sock.sendmsg(parts_now)
        except BlockingIOError:
            # this waits until the socket takes more
            await loop.sock_sendall(sock, parts_now[0])
            sent = len(parts_now[0])
        _drop(unsent, sent)
        if unsent:
            await asyncio.sleep(0)


def behind(parts: Sequence[bytes | memoryview], sent: int) -> list[memoryview]:
    """What is left of `parts` behind the first `sent` bytes."""
    unsent = deque(memoryview(part) for part in parts if part)
    _drop(unsent, sent)
    return list(unsent)


def _next_parts(left: deque[memoryview]) -> list[memoryview]:
    given: list[memoryview] = []
    size = 0
    for part in left:
        given.append(part[: _BYTES - size])
        size += len(given[-1])
        if size >= _BYTES or len(given) == _PARTS:
            break
    return given


def _drop(left: deque[memoryview], sent: int) -> None:
    while sent:
        part = left.popleft()
        if sent < len(part):
            left.appendleft(part[sent:])
            return
        sent -= len(part)

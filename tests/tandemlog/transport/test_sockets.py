"""Parts arrive end to end, however little the socket takes at a time."""

import asyncio
import random
import socket

import pytest

from tandemlog.transport.sockets import send_parts


@pytest.mark.parametrize("seed", range(8))
async def test_parts_arrive_end_to_end(seed: int) -> None:
    made = random.Random(seed)
    sizes = [made.choice([0, 1, 100, 70_000, 3 << 20]) for _ in range(made.randrange(1, 90))]
    parts = [made.randbytes(min(size, 50_000)) * (1 + size // 50_000) for size in sizes]
    left, right = socket.socketpair()
    with left, right:
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, made.choice([4_096, 1 << 20]))
        for each in (left, right):
            each.setblocking(False)
        sending = asyncio.create_task(
            send_parts(left, [memoryview(part) if seed % 2 else part for part in parts])
        )
        received = bytearray()
        while len(received) < sum(map(len, parts)):
            received += await asyncio.get_running_loop().sock_recv(right, 100_000)
        await sending
    assert received == b"".join(parts)


async def test_a_closed_socket_is_an_error() -> None:
    left, right = socket.socketpair()
    with left:
        left.setblocking(False)
        right.close()
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
            await send_parts(left, [b"x" * 100, b"y"])

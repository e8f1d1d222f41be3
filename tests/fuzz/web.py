"""Mutated HTTP requests as raw bytes over a socket: what a client library would not let out."""

import socket
from random import Random
from urllib.parse import quote_from_bytes

from fuzz.mutate import Mutator
from tandemlog_server.node.http.health import PATHS

METHODS = (
    b"GET",
    b"GET",
    b"GET",
    b"HEAD",
    b"OPTIONS",
    b"POST",
    b"PUT",
    b"DELETE",
    b"TRACE",
    b"g\0",
)
SIZES = (
    b"10MB", b"64KiB", b"0", b"-1", b"1e9", b"9" * 400, b"9" * 5_000, b"0.5GiB", b"1" + b"0" * 308,
    b"." + b"9" * 400, b"1.5.5", b"10 MB", b"\xd9\xa3", b"nan", b"inf", b"MB",
    b"\xef\xbc\x91\xef\xbc\x92",
)  # fmt: skip
HEADERS = (
    b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Connection: Upgrade\r\nUpgrade: h2c",
    b"Accept: */*", b"Accept-Encoding: gzip", b"Range: bytes=0-", b"Host: a\r\nHost: b", b"X: \xff",
    b"Cookie: " + b"a" * 9_000, b": no name", b"Content-Type: multipart/form-data",
)  # fmt: skip

_mutator = Mutator((b"lag", b"/metrics", b"/health"))


def request(random: Random) -> bytes:
    """One request; most are wrong in one place."""
    path = random.choice((*PATHS, "/metrics", "/", "/healthz")).encode()
    if random.random() < 0.7:
        name = b"lag" if random.random() < 0.9 else _mutator.text(random)[:200]
        value = random.choice(SIZES) if random.random() < 0.7 else _mutator.text(random)[:9_000]
        if random.random() < 0.9:
            name, value = quote_from_bytes(name).encode(), quote_from_bytes(value).encode()
        path += b"?" + name + b"=" + value
    lines = [random.choice(METHODS) + b" " + path + b" HTTP/1.1", b"Host: node"]
    for _ in range(random.choice((0, 0, 1, 2))):
        lines.insert(random.randrange(1, len(lines) + 1), random.choice(HEADERS))
    data = b"\r\n".join([*lines, b"Connection: close", b"", b""])
    return _mutator.raw(random, data) if random.random() < 0.3 else data


def ask(address: tuple[str, int], data: bytes, timeout_s: float = 1.0) -> bytes:
    """The first bytes of the answer; none where the node waits for more, or hangs up."""
    with socket.create_connection(address, timeout=timeout_s) as connection:
        try:
            connection.sendall(data)
            return connection.recv(4_096)
        except (TimeoutError, ConnectionError):
            return b""


def finding(answer: bytes) -> str:
    """What is wrong with an answer; empty where nothing is."""
    status = answer.split(b"\r\n", 1)[0]
    if answer and not status.startswith(b"HTTP/"):
        return f"no HTTP: {answer[:60]!r}"
    if b" 5" in status and b" 503 " not in status + b" ":
        return f"{status.decode('latin-1')}"
    return ""

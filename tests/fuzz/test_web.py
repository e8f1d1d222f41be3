"""Mutated HTTP requests, and noise on both ports: no 500, no traceback, and the node lives."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from fuzz import corpus, settings, web
from fuzz.nodes import Attacked, attacked

pytestmark = pytest.mark.fuzz
CONNECTIONS = 16


def test_no_http_request_breaks_a_node(tmp_path: Path) -> None:
    found: dict[str, tuple[str, bytes]] = {}
    with attacked(tmp_path) as target, ThreadPoolExecutor(CONNECTIONS) as pool:
        deadline = time.monotonic() + settings.seconds("http")
        number = 0
        while time.monotonic() < deadline:
            numbers = range(number, number + 10 * CONNECTIONS)
            number = numbers.stop
            for wrong, data in pool.map(lambda each: _ask(target, each), numbers):
                if wrong:
                    found.setdefault(corpus.kind_of(wrong), (wrong, data))
        print(f"fuzz: {number} HTTP requests")
        lines = [f"seed {settings.SEED}:"]
        for wrong, data in found.values():
            path = corpus.save("http", wrong, seed=settings.SEED, request=corpus.pack(data))
            lines.append(f"{wrong}\n    replay: pytest tests/fuzz/test_corpus.py -k {path.stem}")
        assert not found, "\n".join(lines)
        target.check(number)


def _ask(target: Attacked, number: int) -> tuple[str, bytes]:
    """One request, or noise on the gRPC port; what was wrong with the answer."""
    random = Random(settings.SEED << 32 | number)
    node = target.cluster.nodes[number % 2]
    if number % 20 == 0:
        start = random.choice((b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
        web.ask(_address(node.endpoint), start + random.randbytes(100), 0.2)
        return "", b""
    data = web.request(random)
    return web.finding(web.ask(_address(node.settings["http_listen"]), data)), data


def _address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host, int(port)

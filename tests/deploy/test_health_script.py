"""compose/health.py: an answer counts, not a connection, over TLS too."""

import datetime
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.running import ROOT
from tandemlog_server.node.certs.folder import make_authority, make_certificate
from tandemlog_server.node.certs.owners import Owner, OwnerKind

SCRIPT = ROOT / "compose" / "health.py"
OK = b'HTTP/1.0 200 OK\r\n\r\n{"reason": ""}'
ILL = b'HTTP/1.0 503 Service Unavailable\r\n\r\n{"reason": "the disk has failed"}'
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
NOW = datetime.datetime.now(datetime.UTC)


class Server:
    """Answers each connection with `answer`; None: it accepts and is silent, as if frozen."""

    def __init__(self, answer: bytes | None, context: ssl.SSLContext | None = None) -> None:
        self._answer, self._context = answer, context
        self._line = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._line.getsockname()[1]}"
        self.asked = b""
        if answer is not None:
            threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        caller, _ = self._line.accept()
        if self._context is not None:
            caller = self._context.wrap_socket(caller, server_side=True)
        with caller:
            self.asked = caller.recv(4096)
            caller.sendall(self._answer or b"")

    def close(self) -> None:
        self._line.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(answer: bytes | None, context: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(answer, context))
        return servers[-1]

    yield start
    for each in servers:
        each.close()


def check(*arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-S", "-E", str(SCRIPT), *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_node_that_is_well(serve: Callable[..., Server]) -> None:
    node = serve(OK)
    assert check(TANDEMLOG_HTTP_LISTEN=node.endpoint) == (0, "")
    assert node.asked.startswith(b"GET /health ")


def test_a_node_that_is_ill_says_why(serve: Callable[..., Server]) -> None:
    code, said = check(TANDEMLOG_HTTP_LISTEN=serve(ILL).endpoint)
    assert code == 1
    assert "the disk has failed" in said


@pytest.mark.parametrize("arguments", [(), ("grpc",)])
def test_a_process_that_is_frozen(arguments: tuple[str, ...], serve: Callable[..., Server]) -> None:
    frozen = serve(None).endpoint
    words = (*arguments, frozen) if arguments else ()
    code, said = check(*words, TANDEMLOG_HTTP_LISTEN=frozen)
    assert (code, "timed out" in said) == (1, True)


def test_nothing_listens(serve: Callable[..., Server]) -> None:
    gone = serve(None)
    gone.close()
    code, said = check(TANDEMLOG_HTTP_LISTEN=gone.endpoint)
    assert (code, "refused" in said) == (1, True)


def test_a_coordinator_answers_http_2(serve: Callable[..., Server]) -> None:
    coordinator = serve(SETTINGS)
    assert check("grpc", coordinator.endpoint) == (0, "")
    assert coordinator.asked.startswith(b"PRI * HTTP/2.0")
    code, said = check("grpc", serve(b"HTTP/1.1 400 Bad Request\r\n\r\n").endpoint)
    assert (code, "does not answer HTTP/2" in said) == (1, True)


def test_it_shows_the_nodes_own_certificate(tmp_path: Path, serve: Callable[..., Server]) -> None:
    make_authority(tmp_path, "c", 1, NOW)
    make_certificate(tmp_path, Owner("c", OwnerKind.NODE, "n0"), ["n0"], 1, NOW)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.crt")
    context.load_cert_chain(tmp_path / "n0.crt", tmp_path / "n0.key")
    context.verify_mode = ssl.CERT_REQUIRED
    node = serve(OK, context)
    files = {
        "TANDEMLOG_TLS__CERT_FILE": str(tmp_path / "n0.crt"),
        "TANDEMLOG_TLS__KEY_FILE": str(tmp_path / "n0.key"),
    }
    assert check(TANDEMLOG_HTTP_LISTEN=node.endpoint, **files) == (0, "")

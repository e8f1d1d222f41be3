"""An S3 server on a port of this machine (moto's), and what goes wrong on the way to it.

    caller ──▶ trouble ──▶ moto
               pass        done, and answered
               refused     503 SlowDown, and nothing is done
               denied      403 AccessDenied, and nothing is done
               lost        done, and 503 in place of the answer
               late        503 now, done at `settle`
               repeated    done, and once more at `settle`

Callers find it by the variables of the environment that users of MinIO set; see docs/operations.md.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final, Literal

import pytest
from moto import settings
from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

ACCESS_KEY: Final = "AKIDOFTHETESTS"
SECRET: Final = "a-secret-that-nobody-may-see"
BUCKET: Final = "shop"

Trouble = Literal["pass", "refused", "denied", "lost", "late", "repeated"]
_CODES: Final = {403: "AccessDenied", 503: "SlowDown"}


class S3Server:
    """See the module. `trouble(method, path)` decides over each request; `requests` are those that
    came, `(method, path)`."""

    def __init__(self) -> None:
        self.trouble: Callable[[str, str], Trouble] = lambda method, path: "pass"
        self.requests: list[tuple[str, str]] = []
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._waiting: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._moto_lock = threading.Lock()
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """How a user says where the server is, and who he is. One attempt: a test does not wait."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
        }

    def settle(self) -> None:
        """What was late, or comes twice, is done."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._done(each, lambda *_: None)

    def __enter__(self) -> "S3Server":
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        backend.reset()
        backend.create_bucket(BUCKET, "us-east-1")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: dict[str, Any], respond: Any) -> Iterable[bytes]:
        size = int(request.get("CONTENT_LENGTH") or 0)
        request["wsgi.input"] = BytesIO(request["wsgi.input"].read(size))
        method, path = request["REQUEST_METHOD"], request["PATH_INFO"]
        with self._lock:
            self.requests.append((method, path))
            trouble = self.trouble(method, path)
            if trouble in ("late", "repeated"):
                self._waiting.append(_again(request))
        if trouble in ("pass", "repeated"):
            return self._done(request, respond)
        if trouble == "lost":
            self._done(request, lambda *_: None)
        status = 403 if trouble == "denied" else 503
        body = f"<Error><Code>{_CODES[status]}</Code><Message>not now</Message></Error>".encode()
        respond(
            f"{status} {_CODES[status]}",
            [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))],
        )
        return [b"" if method == "HEAD" else body]

    def _done(self, request: dict[str, Any], respond: Any) -> list[bytes]:
        """One at a time: moto closes the content of an object that is replaced under its reader."""
        with self._moto_lock:
            return list(self._moto(request, respond))


class _Quiet(WSGIRequestHandler):
    """Writes no line for each request."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


def _again(request: dict[str, Any]) -> dict[str, Any]:
    content = request["wsgi.input"].getvalue()
    kept = {
        key: value for key, value in request.items() if not key.startswith(("werkzeug.", "flask."))
    }
    return {**kept, "wsgi.input": BytesIO(content)}


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that this process and its children find by their environment. It lists three names
    at a time, so every list has pages."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    assert settings.get_s3_default_max_keys() == 3
    with S3Server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server

"""What a browser gets: JSON, files of the page, and errors, each with the headers that protect it.

An error is {"error": text, "kind": class of the error}; the page shows the text as it is.
"""

import asyncio
import gzip
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from aiohttp import web

from tandemlog.errors import (
    AuthenticationError,
    BusyError,
    ChangeRefusedError,
    InvalidArgumentError,
    InvalidMessageError,
    PermissionDeniedError,
    TandemlogError,
    UnavailableError,
    UnknownGroupError,
    UnknownQueueError,
    UnknownTopicError,
)

from .visit import Json

PROTECTION: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NOT_KEPT: Final = {"Cache-Control": "no-store"}
PACKED_BYTES = 4_096
"""From this size on an answer is compressed."""
STATUS: Final = (
    # of a node that was asked, for instance one that the caller's certificate did not reach: this
    # session is known, and the page does not log in again
    (AuthenticationError, 403),
    (PermissionDeniedError, 403),
    (UnknownTopicError, 404),
    (UnknownGroupError, 404),
    (UnknownQueueError, 404),
    (BusyError, 429),
    (UnavailableError, 503),
    (ChangeRefusedError, 409),
    (InvalidArgumentError, 400),
    (InvalidMessageError, 400),
    (TandemlogError, 409),
)
KINDS: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}


def fault(status: int, text: str, kind: str = "", **headers: str) -> web.Response:
    """An error that the console itself finds."""
    body = json.dumps({"error": text, "kind": kind})
    return web.Response(
        status=status,
        text=body,
        content_type="application/json",
        headers={**PROTECTION, **NOT_KEPT, **headers},
    )


def fault_of(error: Exception) -> web.Response:
    """The answer to a request that ended with `error`."""
    if isinstance(error, TandemlogError):
        status = next(code for kind, code in STATUS if isinstance(error, kind))
        return fault(status, str(error), type(error).__name__)
    if isinstance(error, TimeoutError):
        return fault(503, "the cluster did not answer in time: try again", "TimeoutError")
    return fault(500, "the node could not answer: its log says why", "InternalError")


def is_expected(error: Exception) -> bool:
    """Whether the text of `error` is for the caller, and the log needs none."""
    return isinstance(error, TandemlogError | TimeoutError)


async def json_answer(body: Json, accepts: str, status: int = 200) -> web.Response:
    """`accepts` is the request's Accept-Encoding."""
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    headers = {**PROTECTION, **NOT_KEPT, "Vary": "Accept-Encoding"}
    if len(data) >= PACKED_BYTES and "gzip" in accepts:
        data = await asyncio.to_thread(gzip.compress, data, 1)
        headers["Content-Encoding"] = "gzip"
    return web.Response(
        status=status, body=data, content_type="application/json", charset="utf-8", headers=headers
    )


def download(data: bytes, name: str) -> web.Response:
    """`data` as a file that no browser shows as a page. `name` consists of [A-Za-z0-9._-]."""
    headers = {
        **PROTECTION,
        **NOT_KEPT,
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return web.Response(body=data, content_type="application/octet-stream", headers=headers)


class Assets:
    """The files of the page, read once, in memory and compressed."""

    def __init__(self) -> None:
        self._files: Mapping[str, tuple[bytes, str, str]] = {
            each.name: _packed(each.name, each.read_bytes())
            for each in self.folder().iterdir()
            if each.name.endswith(tuple(KINDS))
        }

    @staticmethod
    def folder() -> Traversable:
        return resources.files(__package__) / "assets"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._files)

    def sizes(self) -> Mapping[str, int]:
        """By name, in bytes as they are sent."""
        return {name: len(row[0]) for name, row in self._files.items()}

    def answer(self, name: str, request: web.Request, status: int = 200) -> web.Response:
        data, kind, tag = self._files[name]
        headers = {**PROTECTION, "Cache-Control": "no-cache", "ETag": tag}
        if status == 200 and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        headers["Vary"] = "Accept-Encoding"
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
        else:
            data = gzip.decompress(data)
        return web.Response(
            status=status, body=data, content_type=kind, charset="utf-8", headers=headers
        )


def _packed(name: str, data: bytes) -> tuple[bytes, str, str]:
    """Compressed; its kind; and its entity tag."""
    kind = KINDS["." + name.rpartition(".")[2]]
    return gzip.compress(data, 9, mtime=0), kind, f'"{hashlib.sha256(data).hexdigest()[:16]}"'

"""Whom a request came from: what gRPC's contexts say of a call, for HTTP."""

from typing import Any, cast

from aiohttp import web


def certificate_of(request: web.Request) -> bytes | None:
    """The client's certificate in DER; None if it showed none."""
    tls: Any = request.get_extra_info("ssl_object")
    return None if tls is None else cast("bytes | None", tls.getpeercert(binary_form=True))


def peer_of(request: web.Request) -> str:
    """host:port, or - if the connection is gone."""
    name: Any = request.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if name else "-"

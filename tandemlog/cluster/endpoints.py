"""Addresses: those a caller names, and the one by which the nodes see this client."""

import asyncio
import socket
from collections.abc import Sequence

from ..format.calls import DEFAULT_PORT


def parse_endpoints(endpoints: str | Sequence[str]) -> tuple[str, ...]:
    """ "host:port" texts, split at commas; a missing port is 10911. Raises ValueError."""
    texts = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
    parsed = tuple(dict.fromkeys(_endpoint(text.strip()) for text in texts if text.strip()))
    if not parsed:
        raise ValueError("no endpoint given: name at least one node as host:port")
    return parsed


def _endpoint(text: str) -> str:
    if "/" in text:
        return text  # a gRPC target with a scheme, e.g. unix:///run/node.sock or dns:///name:1
    host, port = split_host_port(text)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str) -> tuple[str, int]:
    """Host (an IPv6 one without brackets) and port; raises ValueError."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError(f"endpoint {text!r} has no host")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"endpoint {text!r}: the port must be 1..65535")
    return host, int(port or DEFAULT_PORT)


async def own_address(endpoint: str) -> str:
    """This machine's address on the route to `endpoint`, as "1.2.3.4" or an IPv6 text; loopback if
    it cannot be found. Nothing is sent."""
    loop = asyncio.get_running_loop()
    try:
        host, port = split_host_port(endpoint)
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0]).partition("%")[0]
    except (OSError, ValueError):
        return "127.0.0.1"

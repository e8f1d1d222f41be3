"""What a node's HTTP port serves: health, metrics and, where it is switched on, the console.

A node imports this module after it has started to serve: the libraries of HTTP and metrics are a
third of all imports, and after a crash the first put would wait for them.
"""

from typing import Protocol

from .console.console import Console
from .console.served_node import ServedNode
from .http.http_server import HttpServer, serve_http
from .http.node_numbers import Observed
from .process.machine_bounds import ConnectionBounds
from .settings.host_port import split_endpoint


class HttpNode(ServedNode, Observed, Protocol):
    """A node that has an HTTP port."""


async def serve_http_port(node: HttpNode, bounds: ConnectionBounds) -> HttpServer:
    """Listen on the node's HTTP port. Raises OSError if it is taken."""
    config = node.config
    return await serve_http(
        node,
        config.cluster_id,
        config.node_id,
        split_endpoint(node.endpoints.http),
        node.membership.elections,
        node.security,
        bounds,
        Console(node) if config.console.enabled else None,
    )

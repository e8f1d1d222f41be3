"""A node in this process that asks who calls: its settings, its access file, and its callers."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from fakes.authority import Authority, Pair
from fakes.inner_node import SMALL as SMALL
from fakes.inner_node import running as running
from fakes.inner_node import until as until
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.node_config import NodeConfig


def token(name: str) -> str:
    """The token of the identity `name`."""
    return f"tl_of_{name}"


def bearer(name: str) -> tuple[tuple[str, str]]:
    """What a call of the identity `name` carries."""
    return (("authorization", f"Bearer {token(name)}"),)


def access_text(**identities: dict[str, Any]) -> str:
    """An access file: each identity has its name's token."""
    lines = []
    for name, rights in identities.items():
        digest = hashlib.sha256(token(name).encode()).hexdigest()
        rows: dict[str, Any] = {"name": name, "tokens": [f"sha256:{digest}"], **rights}
        lines.append("[[identity]]")
        lines += [f"{key} = {_toml(value)}" for key, value in rows.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def settings(
    folder: Path,
    *,
    authority: Authority | None = None,
    required: bool = False,
    access: str = "",
    http: bool = False,
    node_id: str = "n0",
    **fields: Any,
) -> NodeConfig:
    """Of a node below `folder`, with a certificate of `authority` and this access file."""
    folder.mkdir(exist_ok=True)
    tls: Any = {"reload_interval_ms": 10}
    store: Any = {"directory": folder / f"store-{node_id}", **SMALL}
    if authority is not None:
        certificate, key = authority.node(node_id).write(folder, node_id)
        tls |= {"ca_file": str(authority.write(folder)), "cert_file": str(certificate)}
        tls |= {"key_file": str(key), "client_certificates": "required" if required else "none"}
    security: Any = dict(fields.pop("security", {}))
    if access:
        path = folder / "access.toml"
        path.write_text(access)
        security["access_file"] = str(path)
    return NodeConfig(
        cluster_id="test",
        node_id=node_id,
        listen="127.0.0.1:0",
        http_listen="127.0.0.1:0" if http else "",
        tls=tls,
        security=security,
        store=store,
        **fields,
    )


@asynccontextmanager
async def channel(
    node: Node, authority: Authority | None = None, pair: Pair | None = None
) -> AsyncIterator[aio.Channel]:
    """To `node`; by TLS that trusts `authority`, with the certificate `pair`."""
    if authority is None:
        made = aio.insecure_channel(node.endpoints.listen)
    else:
        key, certificate = (pair.key, pair.certificate) if pair is not None else (None, None)
        credentials = grpc.ssl_channel_credentials(authority.pem, key, certificate)
        made = aio.secure_channel(node.endpoints.listen, credentials)
    async with made:
        yield made

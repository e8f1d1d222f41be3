"""Options that several commands share, and what is made of them."""

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.cluster.endpoints import parse_endpoints
from tandemlog.cluster.topology import ReadFrom
from tandemlog.format.calls import DEFAULT_PORT
from tandemlog_server.storage.config import StoreConfig

from ..output.tables import Format
from .connecting import security

DEFAULTS = StoreConfig(Path())

Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        "-e",
        envvar="TANDEMLOG_ENDPOINT",
        metavar="HOST:PORT[,…]",
        help="Address of any node of the cluster, or of several; the client finds the others "
        "through them.",
    ),
]
DEFAULT_ENDPOINT = f"127.0.0.1:{DEFAULT_PORT}"

FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        "-f",
        help="Output format: table for people, jsonl for programs (one JSON object per line).",
    ),
]


def timeout_option(help_text: str) -> Any:
    """--timeout of a command, in seconds."""
    return typer.Option("--timeout", metavar="SECONDS", min=0.1, max=86_400, help=help_text)


Timeout = Annotated[float, timeout_option("How many seconds to keep trying before giving up.")]
DEFAULT_TIMEOUT_S = 5.0

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait",
        help="Wait only until the master has appended the messages, not for flush or replicas.",
    ),
]

ReadFromOption = Annotated[ReadFrom, typer.Option("--from", help="Which nodes to read from.")]

Store = Annotated[
    Path,
    typer.Argument(metavar="STORE", help="Folder of a store that tandemlog or RocketMQ wrote."),
]


def check_endpoints(endpoint: str) -> str:
    """`endpoint` itself; raises typer.BadParameter that names the wrong part."""
    try:
        parse_endpoints(endpoint)
    except ValueError as error:
        raise typer.BadParameter(f"--endpoint: {error}") from None
    return endpoint


def connection_options(timeout_s: float, *, starting: bool = False) -> ConnectionOptions:
    """A person waits: tries end with `timeout_s`. `starting`: also while no node answers yet."""
    timeout_ms = max(1, round(timeout_s * 1000))
    options = ConnectionOptions(
        request_timeout_ms=timeout_ms,
        retry_timeout_ms=timeout_ms,
        discovery_timeout_ms=min(2_000, timeout_ms),
        security=security(),
    )
    return replace(options, connect_timeout_ms=timeout_ms) if starting else options


def named_values(option: str, texts: Iterable[str] | None) -> dict[str, str]:
    """What an option says that may be repeated. Raises typer.BadParameter that names it."""
    values = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{option} must be NAME=VALUE, not {text!r}")
        values[name] = value
    return values


def now_ms() -> int:
    return time.time_ns() // 1_000_000

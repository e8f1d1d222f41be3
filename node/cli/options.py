"""Options that several commands share, and what is made of them."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from storage.config import StoreConfig
from storage.disk.real_files import RealFileSystem
from storage.store_paths import StorePaths
from tandemlog.cluster.connection import ConnectionOptions
from tandemlog.cluster.endpoints import parse_endpoints
from tandemlog.cluster.topology import ReadFrom

from ..settings.config import DEFAULT_PORT
from .exit_codes import STORE
from .failures import CommandError, one_line_errors
from .output import Format

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


def timeout_option(help_text: str, *, show_default: bool = True) -> Any:
    """--timeout of a command, in seconds."""
    return typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        max=86_400,
        help=help_text,
        show_default=show_default,
    )


Timeout = Annotated[float, timeout_option("How many seconds to keep trying before giving up.")]
DEFAULT_TIMEOUT_S = 5.0

ReadFromOption = Annotated[
    ReadFrom,
    typer.Option("--from", help="Which nodes to read from."),
]

Store = Annotated[
    Path,
    typer.Argument(
        metavar="STORE",
        help="Folder of a store that tandemlog or RocketMQ wrote.",
        show_default=False,
    ),
]
IndexSlots = Annotated[
    int,
    typer.Option(
        "--index-slots", min=1, help="Number of hash slots in each index file of this store."
    ),
]
IndexEntries = Annotated[
    int,
    typer.Option(
        "--index-entries",
        min=2,
        help="Number of entries for which each index file of this store has room.",
    ),
]
QueueFileSize = Annotated[
    int,
    typer.Option(
        "--queue-file-size",
        min=20,
        help="Size of a consume queue file in bytes, used if the store has none yet.",
    ),
]


def check_endpoints(endpoint: str) -> str:
    """`endpoint` itself; raises typer.BadParameter that names the wrong part."""
    try:
        parse_endpoints(endpoint)
    except ValueError as problem:
        raise typer.BadParameter(f"--endpoint: {problem}") from None
    return endpoint


def connection_options(timeout_s: float) -> ConnectionOptions:
    """A person waits: tries end with `timeout_s`."""
    timeout_ms = max(1, round(timeout_s * 1000))
    return ConnectionOptions(
        request_timeout_ms=timeout_ms,
        retry_timeout_ms=timeout_ms,
        discovery_timeout_ms=min(2_000, timeout_ms),
    )


def store_config(
    store: Path, index_slots: int, index_entries: int, queue_file_size: int
) -> StoreConfig:
    """Settings for a store on disk. Raises typer.BadParameter where they cannot be; ends in one
    line and STORE where the folder is no store, or may not be looked into."""
    with one_line_errors():
        status = RealFileSystem().status(store)
        if status is not None and status.is_directory and not _is_store(store):
            raise CommandError(f"{store} is not a store: it has no commitlog folder", STORE)
    if status is None or not status.is_directory:
        raise typer.BadParameter(f"STORE {store} is not a folder")
    try:
        return StoreConfig(
            store,
            queue_file_size=queue_file_size,
            index_slots=index_slots,
            index_entries=index_entries,
        )
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None


def _is_store(folder: Path) -> bool:
    """Whether anything here is a store's. Without this a mistyped path is an empty store: it holds,
    and recover writes into it.

    The log's folder comes with the first message, so a node that never got one has only the small
    files; a broker may keep its log elsewhere, which the store itself says better. The folder
    `tandemlog` proves nothing: a checkout of this project has one.
    """
    files, paths = RealFileSystem(), StorePaths(folder)
    for directory in (paths.commit_log, paths.queues):
        status = files.status(directory)
        if status is not None and status.is_directory:
            return True
    for file in (paths.checkpoint, paths.recovery_point):
        status = files.status(file)
        if status is not None and not status.is_directory:
            return True
    return False


def now_ms() -> int:
    return time.time_ns() // 1_000_000

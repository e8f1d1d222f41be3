"""Options of the commands on the files of a store, and the settings that they give."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.store_paths import StorePaths

from .exit_codes import STORE
from .failures import CommandError
from .options import DEFAULTS


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """What the files of a foreign store cannot tell. Every command on a store takes them, so that
    one set of options serves for all."""

    index_slots: Annotated[
        int,
        typer.Option(
            "--index-slots", min=1, help="Number of hash slots in each index file of this store."
        ),
    ] = DEFAULTS.index_slots
    index_entries: Annotated[
        int,
        typer.Option(
            "--index-entries",
            min=2,
            help="Number of entries for which each index file of this store has room.",
        ),
    ] = DEFAULTS.index_entries
    queue_file_size: Annotated[
        int | None,
        typer.Option(
            "--queue-file-size",
            min=20,
            help="Size of a consume queue file in bytes, used if the store has none. "
            "[default: RocketMQ's]",
        ),
    ] = None


def store_config(store: Path, sizes: StoreSizes) -> StoreConfig:
    """Settings for a store on disk. Raises typer.BadParameter if they cannot be, CommandError where
    the folder is not a store, and OSError where it may not be read."""
    status = RealFileSystem().status(store)
    if status is None or not status.is_directory:
        raise typer.BadParameter(f"STORE {store} is not a folder")
    if not _is_store(store):
        raise CommandError(f"{store} is not a store: it has no commitlog folder", STORE)
    try:
        return StoreConfig(
            store,
            queue_file_size=sizes.queue_file_size or DEFAULTS.queue_file_size,
            index_slots=sizes.index_slots,
            index_entries=sizes.index_entries,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


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

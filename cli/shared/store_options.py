"""Options that stand together on many commands, declared once.

    @dataclass                                    @app.command("rebuild")
    class StoreSizes:                             @with_groups
        index_slots: IndexSlots = 5_000_000       def rebuild(store: Store, *, sizes: StoreSizes)
        index_entries: IndexEntries = ...
                                                  rebuild STORE [--index-slots N] ...

A parameter whose type is a dataclass stands for the dataclass's fields, in its place: typer sees
only those. The command gets the object.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import typer

from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.store_paths import StorePaths

from .exit_codes import STORE
from .failures import CommandError, one_line_errors
from .options import DEFAULTS, IndexEntries, IndexSlots, QueueFileSize


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """What the files of a foreign store cannot tell. Every command on a store takes them, so that
    one set of options serves for all."""

    index_slots: IndexSlots = DEFAULTS.index_slots
    index_entries: IndexEntries = DEFAULTS.index_entries
    queue_file_size: QueueFileSize = None


def with_groups(command: Callable[..., None], **others: type) -> Callable[..., None]:
    """The command as typer is to see it; every field of a group has a default. `others` names the
    parameters whose group is another than the command says: one that is derived from it."""
    hints = get_type_hints(command, include_extras=True) | others
    groups: dict[str, Any] = {}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            groups[name] = kind
            parameters += _parameters_of(kind)
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameters_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def store_config(store: Path, sizes: StoreSizes) -> StoreConfig:
    """Settings for a store on disk. Raises typer.BadParameter if they cannot be; ends in one
    line and STORE where the folder is not a store, or may not be looked into."""
    with one_line_errors():
        status = RealFileSystem().status(store)
        if status is not None and status.is_directory and not _is_store(store):
            raise CommandError(f"{store} is not a store: it has no commitlog folder", STORE)
    if status is None or not status.is_directory:
        raise typer.BadParameter(f"STORE {store} is not a folder")
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

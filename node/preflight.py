"""What can be said of a node's configuration and its machine before anything is started or changed.

    tandemlog node --check     every fault, one line each
    tandemlog node             the first fault ends it, before the store is opened

An open store finds most of these faults too, but after a recovery that may take minutes, or in the
words of a library. Here each has one line that names the setting and the way out. Nothing is
created, locked or written; a port is bound for a moment.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tandemlog.archive.errors import ArchiveUrlError
from tandemlog.archive.open_store import open_object_store
from tandemlog_server.ha.config import HaConfig
from tandemlog_server.ha.errors import HaError
from tandemlog_server.ha.replication_file import StateFile
from tandemlog_server.rocketmq.follow.address import parse_address
from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import StoreError, StoreLayoutError
from tandemlog_server.storage.state_files.abort_file import AbortFile
from tandemlog_server.storage.state_files.lock_file import LockFile
from tandemlog_server.storage.state_files.store_checkpoint import StoreCheckpoint
from tandemlog_server.storage.store_paths import StorePaths

from .process.machine_bounds import (
    LEAST_FILES,
    open_files_after_raise,
    says_of_files,
    says_of_memory,
)
from .process.memory_at_rest import machine_memory_bytes
from .roles.following_roles import NOT_SERVED_YET, check_follows, serves_after_takeover
from .security.security_loading import check_security
from .settings.config_error import ConfigError
from .settings.host_port import join, split_endpoint
from .settings.listen_endpoints import ListenError, choose_endpoints
from .settings.node_config import NodeConfig
from .settings.rocketmq_endpoints import choose_rocketmq_endpoints

RELEASED_MS = 1_767_225_600_000
"""The first of January 2026: no clock that is right says anything earlier."""
CONNECT_S = 1.0

Check = Callable[[NodeConfig, FileSystem, int], Iterator[Exception]]


def faults(
    config: NodeConfig, files: FileSystem | None = None, now_ms: int | None = None
) -> Iterator[Exception]:
    """Every fault, the ones first that would make the others meaningless: ConfigError,
    ListenError, StoreError or HaError, each with one line of text."""
    disk = files or RealFileSystem()
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    for check in _CHECKS:
        try:
            yield from check(config, disk, now)
        except (ConfigError, ListenError, StoreError, HaError) as fault:
            yield fault


def warnings(config: NodeConfig) -> Iterator[str]:
    """What does not keep the node from starting, but from being of use: bounds that this machine
    makes smaller, other processes that cannot be reached now, a section without effect."""
    others = [("coordinator.endpoints", each) for each in config.coordinator.endpoints]
    if config.master:
        others.append(("master", config.master))
    if config.follow:
        others += [("follow", join(*place)) for place in parse_address(config.follow).places]
    if config.follow and config.rocketmq.on:
        with contextlib.suppress(OSError, HaError):  # a fault, which `faults` names
            if serves_after_takeover(config.store.directory, RealFileSystem()):
                yield NOT_SERVED_YET
    yield from says_of_files(open_files_after_raise())
    yield from says_of_memory(_budgets(config), machine_memory_bytes())
    for key, endpoint in others:
        try:
            socket.create_connection(split_endpoint(endpoint), CONNECT_S).close()
        except OSError as error:
            yield f"{key}: {endpoint} cannot be reached now: {error.strerror or error}"


def _addresses(config: NodeConfig, _: FileSystem, __: int) -> Iterator[Exception]:
    choose_endpoints(config)
    choose_rocketmq_endpoints(config.rocketmq)
    yield from ()


def _descriptors(_: NodeConfig, __: FileSystem, ___: int) -> Iterator[Exception]:
    """Whether the process may open enough files."""
    number = open_files_after_raise()
    if number < LEAST_FILES:
        yield ConfigError(
            f"this process may have {number} open files, a node needs at least {LEAST_FILES}: "
            "raise the limit (ulimit -n, LimitNOFILE of systemd)"
        )


def _budgets(config: NodeConfig) -> dict[str, int]:
    """What is kept in memory for others, by the names of its settings, in bytes."""
    return {
        "limits.answer_bytes": config.limits.answer_bytes,
        "put.max_pending_bytes": config.put.max_pending_bytes,
    }


def _directory(config: NodeConfig, _: FileSystem, __: int) -> Iterator[Exception]:
    """The folder, or the nearest one above it, in which it is going to be created."""
    directory = config.store.directory.absolute()
    nearest = next(each for each in (directory, *directory.parents) if os.path.lexists(each))
    if not nearest.is_dir():
        yield StoreLayoutError(
            f"store.directory: {nearest} is not a folder; give another one, or move it away"
        )
        return
    if not _may_write(nearest):
        what = "" if nearest == directory else f", and {directory} is not there yet"
        yield StoreLayoutError(
            f"store.directory: user {os.geteuid()} may not write to {nearest}{what}; give the "
            "folder to that user, or run the node as its owner"
        )
        return
    paths = StorePaths(directory)
    for folder in (paths.own, paths.config, paths.commit_log, paths.queues, paths.index):
        if folder.is_dir() and not _may_write(folder):
            yield StoreLayoutError(
                f"store.directory: user {os.geteuid()} may not write to {folder}, where the store "
                "keeps files; give the folder to that user, or run the node as its owner"
            )


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def _store(config: NodeConfig, files: FileSystem, _: int) -> Iterator[Exception]:
    """Whether another process has it, and whether it belongs to this node."""
    paths = StorePaths(config.store.directory)
    try:
        LockFile(paths.lock, AbortFile(paths.abort, files), files).check()
        StateFile(config.store.directory, files).check_role(_identity(config))
        if not config.follow:
            check_follows(config.store.directory, files)
    except OSError as error:
        yield ConfigError(f"store.directory: {error.filename}: {error.strerror}")


def _clock(config: NodeConfig, files: FileSystem, now_ms: int) -> Iterator[Exception]:
    """Retention, searches by time and leases of others go by it."""
    if now_ms < RELEASED_MS:
        yield ConfigError(
            f"the clock of this machine says {_date(now_ms)}, which is before this program was "
            "made: set it"
        )
        return
    path = StorePaths(config.store.directory).checkpoint
    try:
        newest_ms = StoreCheckpoint(path, files).load().physic_msg_timestamp
    except OSError:
        return  # the check of the folder, or the open, says more
    behind_ms = newest_ms - now_ms
    if behind_ms > config.clock_tolerance_ms:
        yield ConfigError(
            f"the clock of this machine says {_date(now_ms)}, but the newest message in "
            f"{config.store.directory} was stored at {_date(newest_ms)}: set the clock, or "
            f"clock_tolerance_ms to more than {behind_ms} if the other one was wrong"
        )


def _security(config: NodeConfig, _: FileSystem, now_ms: int) -> Iterator[Exception]:
    """Certificates, access file and token."""
    try:
        check_security(config, now=lambda: datetime.fromtimestamp(now_ms / 1000, UTC))
    except ConfigError as error:
        yield from map(ConfigError, str(error).splitlines())


def _coordinator(config: NodeConfig, _: FileSystem, __: int) -> Iterator[Exception]:
    """The files with which the coordinator is reached."""
    if config.elects:
        config.coordinator_options()
    yield from ()


def _archive(config: NodeConfig, files: FileSystem, now_ms: int) -> Iterator[ConfigError]:
    """Only what the URL says, and whether its package is installed: nothing is asked yet."""
    if config.archive.url:
        try:
            open_object_store(config.archive.url).close()
        except ArchiveUrlError as error:
            yield ConfigError(f"archive.url: {error}")


# a clock that is wrong makes good certificates look expired, so it comes before them
_CHECKS: tuple[Check, ...] = (
    _descriptors,
    _addresses,
    _archive,
    _directory,
    _clock,
    _security,
    _coordinator,
    _store,
)


def _identity(config: NodeConfig) -> HaConfig:
    """Only the names of cluster and node, and the role, are looked at."""
    return config.ha_config(endpoint="127.0.0.1:1", http_endpoint="", store_host="127.0.0.1:1")


def _date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def folder_of(config: NodeConfig) -> Path:
    """For the sentence that all is well."""
    return config.store.directory.absolute()

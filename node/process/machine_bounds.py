"""Bounds that depend on the machine: file descriptors and memory, divided once at the start.

    descriptors  | queue files (half, at most 8,192) | OWN | gRPC | data connections | HTTP |
    memory       | answers | puts that wait | frames that have begun | the rest

Connections get what the store leaves, never the other way round: a node that cannot open the next
file of its log stops, and one more connection can come later. What is configured counts where the
machine has room for it; each budget of memory is an eighth of the machine's at most. What a
process may have is what the kernel says: the limit of open files, and of memory that of its
control group, if that is less than the machine has.
"""

import resource
from collections.abc import Iterator
from dataclasses import dataclass

from tandemlog_server.storage.disk.file_pool import MOST_OPEN

from .memory_at_rest import machine_memory_bytes

LEAST_FILES = 256
"""With fewer no node starts: its libraries alone take a third of them."""
WANTED_FILES = 1 << 20
OWN = 160
"""Of libraries, log and index files, the spare ones of the store, and connections to others."""
SPARES = 32
GRPC_CONNECTIONS = 16_384
DATA_CONNECTIONS = 4_096
HTTP_CONNECTIONS = 1_024
FEW_CONNECTIONS = 1_024
"""Below so many of gRPC it is said at the check."""
HANDSHAKES = 256
"""Of HTTP with TLS, under way at one time."""
MEMORY_PART = 8
LEAST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """How many connections each port takes."""

    grpc: int = GRPC_CONNECTIONS
    data: int = DATA_CONNECTIONS
    http: int = HTTP_CONNECTIONS
    handshakes: int = HANDSHAKES

    @property
    def few(self) -> bool:
        """Whether an operator should know."""
        return self.grpc < FEW_CONNECTIONS


def connection_bounds(open_files: int) -> ConnectionBounds:
    """What is left for connections of `open_files` descriptors."""
    remaining = max(open_files - min(open_files // 2, MOST_OPEN) - OWN, 32)
    return ConnectionBounds(
        min(GRPC_CONNECTIONS, remaining * 5 // 8),
        min(DATA_CONNECTIONS, remaining * 3 // 16),
        min(HTTP_CONNECTIONS, remaining // 8),
        min(HANDSHAKES, remaining // 16),
    )


def open_files_after_raise() -> int:
    """How many descriptors this process may have once its soft limit is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    return WANTED_FILES if soft == resource.RLIM_INFINITY else max(soft, wanted)


def raise_open_files() -> None:
    """The soft limit as far as the hard one goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = open_files_after_raise()
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_files() -> int:
    """How many descriptors this process may have now."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return WANTED_FILES if soft == resource.RLIM_INFINITY else soft


def byte_bound(configured: int, memory_bytes: int | None = None) -> int:
    """A budget of memory: what is configured, an eighth of the machine's at most."""
    memory = machine_memory_bytes() if memory_bytes is None else memory_bytes
    return min(configured, max(memory // MEMORY_PART, LEAST_BYTES))


def says_of_files(open_files: int) -> Iterator[str]:
    """What an operator should know of so many descriptors."""
    bounds = connection_bounds(open_files)
    if bounds.few:
        yield (
            f"this process may have {open_files} open files, so it takes {bounds.grpc} "
            f"connections of gRPC, {bounds.data} data connections and {bounds.http} of HTTP: raise "
            "the limit of open files for more (ulimit -n, LimitNOFILE of systemd)"
        )


def says_of_memory(budgets: dict[str, int], memory_bytes: int) -> Iterator[str]:
    """The same for budgets in bytes, by the names of their settings."""
    for name, configured in budgets.items():
        bound = byte_bound(configured, memory_bytes)
        if bound < configured:
            yield (
                f"{name} is {configured} bytes, and this machine has {memory_bytes}: the node uses "
                f"{bound}, an eighth of it"
            )

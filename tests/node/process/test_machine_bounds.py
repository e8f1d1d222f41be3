"""Bounds that depend on the machine leave the store its files, and the machine its memory."""

import pytest

from tandemlog_server.node.process import machine_bounds
from tandemlog_server.node.process.machine_bounds import (
    ConnectionBounds,
    byte_bound,
    connection_bounds,
)
from tandemlog_server.storage.disk.file_pool import MOST_OPEN


@pytest.mark.parametrize("files", [256, 512, 1_024, 4_096, 20_000, 65_536, 1 << 20])
def test_connections_get_what_the_store_leaves(files: int) -> None:
    found = connection_bounds(files)
    taken = found.grpc + found.data + found.http + found.handshakes
    assert min(found.grpc, found.data, found.http, found.handshakes) >= 1
    assert taken + min(files // 2, MOST_OPEN) + (machine_bounds.OWN if files > 400 else 0) <= files


def test_a_large_machine_has_the_full_bounds() -> None:
    assert connection_bounds(1 << 20) == ConnectionBounds()
    assert not list(machine_bounds.says_of_files(1 << 20))


def test_a_small_limit_is_said_with_its_numbers() -> None:
    (line,) = machine_bounds.says_of_files(1_024)
    assert "1024 open files" in line
    assert "LimitNOFILE" in line


def test_a_budget_is_an_eighth_of_the_memory_at_most() -> None:
    assert byte_bound(256 << 20, 64 << 30) == 256 << 20
    assert byte_bound(256 << 20, 1 << 30) == 128 << 20
    assert byte_bound(256 << 20, 1 << 20) == machine_bounds.LEAST_BYTES
    (line,) = machine_bounds.says_of_memory({"limits.answer_bytes": 256 << 20}, 1 << 30)
    assert line.startswith("limits.answer_bytes is 268435456 bytes")

"""Stores that replicate over real gRPC."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.replicas import Make, Replica


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Replica] = []

    def make(node_id: str, **settings: object) -> Replica:
        made.append(Replica(tmp_path, node_id, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in reversed(made):
        await each.stop()

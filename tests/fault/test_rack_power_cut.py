"""A power cut of all machines at once: three nodes that elect, and their coordinator.

Each has a disk of its own (helpers/simulated_disk), and what survives of the writes that were not
flushed differs from disk to disk. The nodes must elect by themselves, and have every message that
was acknowledged.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers.coordinators import EmbeddedProcess
from helpers.elected_nodes import Account, ElectedNodes
from helpers.simulated_disk.disk import SimulatedDisk

pytestmark = [pytest.mark.fault, pytest.mark.fuse]

CUTS = int(os.environ.get("POWER_CUTS", "1"))


class Rack:
    """Three nodes and a coordinator, whose logs of text are beside the disks."""

    def __init__(self, folder: Path, flush: str, stack: ExitStack) -> None:
        homes = [folder / f"disk{number}" for number in range(4)]
        for home in homes:
            home.mkdir()
        self.disks = [SimulatedDisk(home, 64) for home in homes]
        for disk in self.disks:
            stack.callback(disk.close)
        self.coordinator = EmbeddedProcess(folder, data=self.disks[3].mount / "data")
        stack.enter_context(self.coordinator)
        self.nodes = ElectedNodes(folder, [self.coordinator.endpoint])
        for node, disk in zip(self.nodes.nodes, self.disks, strict=False):
            node.settings["store"] |= {"directory": disk.mount / "store", "flush": flush}
            node.wrapper = disk.machine
        stack.enter_context(self.nodes)

    def lose_power(self, seed: int) -> None:
        """And get it again."""
        for number, disk in enumerate(self.disks):
            disk.cut_power(seed * len(self.disks) + number)
        for process in (*self.nodes.nodes, self.coordinator):
            process.kill()
        for disk in self.disks:
            disk.restore_power()
        self.coordinator.start()
        for node in self.nodes.nodes:
            node.start(wait=False)


@pytest.fixture(params=["async", "sync"])
def rack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rack]:
    with ExitStack() as stack:
        yield Rack(tmp_path, request.param, stack)


def test_nothing_acknowledged_is_lost(rack: Rack) -> None:
    with Account(rack.nodes.endpoints) as account:
        for seed in range(CUTS):
            account.wait_more(time.monotonic())
            rack.lose_power(seed)
            rack.nodes.wait_master()
        account.wait_more(time.monotonic())
        account.stop()
        account.check(rack.nodes)
    assert len(account.acknowledged) > 20 * (CUTS + 1)

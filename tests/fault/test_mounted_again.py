"""A disk that is gone for a moment and mounted again, while the machine runs: what was not flushed
is lost, and the node knows (helpers/simulated_disk)."""

import json
from pathlib import Path

import pytest

import tandemlog
from helpers.running import Running
from helpers.simulated_disk.disk import SimulatedDisk
from tandemlog import Message, ProducerOptions
from tandemlog_server.storage.state_files.session_file import MOUNT

pytestmark = [pytest.mark.fault, pytest.mark.fuse]

OPTIONS = ProducerOptions(delivery_timeout_ms=60_000, answer_timeout_ms=30_000, linger_ms=1)


def session(store: Path) -> dict[str, object]:
    text = (store / "tandemlog" / "session.json").read_text()
    found: dict[str, object] = next(
        json.loads(line) for line in text.splitlines() if "boot_id" in line
    )
    return found


@pytest.mark.parametrize("gone", [True, False])
def test_a_node_knows_that_its_disk_was_mounted_again(tmp_path: Path, gone: bool) -> None:
    disk = SimulatedDisk(tmp_path, 128)
    try:
        running = Running(
            tmp_path,
            slaves=1,
            flush="async",
            min_in_sync=2,
            master_store=disk.mount / "store",
            store={"flush_interval_ms": 60_000},
        )
        with running:
            master = running.master
            with tandemlog.Admin(running.endpoints) as admin:
                admin.create_topic("disk", queues=1)
            with tandemlog.Producer(running.endpoints, OPTIONS) as producer:
                producer.send(Message("disk", b"acknowledged", queue_id=0)).result(60)
                assert session(master.store)["counts_unflushed"]
                if gone:
                    disk.cut_power(seed=3)
                master.kill()
            disk.restore_power()
            master.start()
            waits = f"this store may lack acknowledged bytes: wait_for=['n1'] reason={MOUNT}"
            assert (waits in master.tail()) == gone
    finally:
        disk.close()

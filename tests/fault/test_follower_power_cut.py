"""A power cut of a node that a SYNC_MASTER counts on: what the broker acknowledged is on its disk.

The broker, whose slave is gone from then on, acknowledges nothing more. Its own store is not looked
at afterwards: the node's disk alone has to have everything.
"""

import zlib
from pathlib import Path

import pytest

from helpers.running import wait_until
from helpers.simulated_disk.disk import SimulatedDisk
from interop.jars import VERSION
from interop.live import QUEUES, TOPIC, side_by_side

pytestmark = [pytest.mark.fault, pytest.mark.fuse, pytest.mark.interop, pytest.mark.lane("machine")]


def test_what_the_broker_acknowledged_on_its_word_survives(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path, 256)
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "syncFlushTimeout": 1_000}
    try:
        with side_by_side(tmp_path, VERSION, **settings) as pair:
            node = pair.follow(store=disk.mount / "store")
            load = pair.load(threads=8, body_bytes=400, timeout_ms=3_000)
            load.wait_for(3_000, 240)
            disk.cut_power(seed=0)
            wait_until("sends to fail without the slave", lambda: load.summary().failed > 8, 60)
            load.stop()
            promised = load.acknowledged()
            node.kill()
            pair.broker.kill()
            disk.restore_power()
            node.start()  # the broker is gone, so it has nothing but its own disk
            found = {
                str(each.keys): (queue_id, each.queue_offset, zlib.crc32(each.body))
                for queue_id in range(QUEUES)
                for each in node.read_queue(TOPIC, queue_id)
            }
            assert len(promised) >= 3_000
            for key, stored in promised.items():
                assert found[key] == (stored.queue_id, stored.queue_offset, stored.crc32)
            node.stop()
    finally:
        disk.close()

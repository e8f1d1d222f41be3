"""Damage of a master's log that a slave has taken over: what lies behind it was acknowledged."""

from dataclasses import replace

import pytest

from fakes.stores import CONFIG, Bench
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.errors import DamagedChunkError

REPLICATED = replace(CONFIG, confirm=ConfirmSource.REPLICATION)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("confirmed", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_what_a_slave_has_acknowledged_behind_it_is_there_after_a_crash(
    power: bool, confirmed: bool, apart: bool
) -> None:
    master = Bench(REPLICATED)
    master.store.become_master(1)
    for _ in range(5):
        master.put()
    start = master.store.log.wrote.value
    master.put()
    stop = master.store.log.wrote.value
    for _ in range(5):
        master.put()
    end = master.store.log.wrote.value
    data = bytearray(master.store.log.read(0, end))
    data[start:stop] = b"\xee" * (stop - start)

    slave = Bench(REPLICATED, topics=())
    slave.store.topics.replace_from_json(master.store.topics.to_json())
    slave.store.epochs.append(EpochEntry(1, 0))
    with pytest.raises(DamagedChunkError) as found:
        slave.store.raw_intake().take(0, data)
    assert found.value.offset == start
    intake = slave.store.raw_intake()
    slave.store.pass_over(start, stop)
    cut = stop if apart else end
    intake.take(start, bytes(data[start:cut]), stop)
    slave.store.flush()
    if cut < end:
        intake.take(cut, bytes(data[cut:]), stop)
    acknowledged = slave.store.flush()
    assert acknowledged == end
    if confirmed:
        slave.store.advance_confirmed(end)
        slave.store.reput.run_to()
    slave.crash() if power else slave.kill()
    assert slave.store.log.wrote.value == acknowledged
    assert slave.store.doubt == ""
    slave.store.become_master(2)
    assert slave.put().segments[0].queue_offsets.tolist() == [11]

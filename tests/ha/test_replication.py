"""Real stores over real gRPC: every kind of slave comes to follow, or is told why not."""

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
from grpc import aio

from fakes.replicas import SYNC, Make, Replica, eventually
from tandemlog.format.files.epochs import EpochTable
from tandemlog_server.ha.master.node_status import READ_ONLY
from tandemlog_server.ha.slave.slave import ReplicationSlave
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import CorruptStoreError, FlushFailedError
from tandemlog_server.storage.metadata.topics import TopicConfig


async def pair(make: Make, **settings: object) -> tuple[Replica, Replica]:
    """A master with a little log, and a slave that has caught up."""
    master, slave = make("m", **settings), make("s", **settings)
    await master.lead()
    await slave.follow(master)
    master.put(20)
    await slave.caught_up(master)
    return master, slave


async def refused(slave: Replica, words: str) -> str:
    await eventually(lambda: words in slave.slave.state.fault)
    return slave.slave.state.fault


async def test_an_empty_slave_gets_the_whole_log_and_the_masters_file_size(replica: Make) -> None:
    master, slave = replica("m", file_size=4096), replica("s", file_size=16384)
    await master.lead()
    for _ in range(10):
        master.put(10)
    await slave.follow(master)
    await slave.caught_up(master)
    assert slave.store.log.file_size == 4096
    assert slave.log() == master.log()
    assert slave.store.epochs.table == master.store.epochs.table


@pytest.mark.parametrize("cold", [True, False])
async def test_what_only_the_disk_has_is_not_read_in_the_loop(
    replica: Make, monkeypatch: pytest.MonkeyPatch, cold: bool
) -> None:
    master, slave = replica("m"), replica("s")
    await master.lead()
    master.put(20)
    log, readers = master.store.log, set()
    read = log.read

    def noted(offset: int, max_bytes: int) -> memoryview:
        readers.add(threading.current_thread().name.partition("_")[0])
        return read(offset, max_bytes)

    monkeypatch.setattr(log, "read", noted)
    monkeypatch.setattr(log, "in_memory", lambda offset, size: not cold)
    await slave.follow(master)
    await slave.caught_up(master)
    assert ("MainThread" in readers) is not cold
    assert slave.log() == master.log()


async def test_what_is_put_while_it_follows_arrives_and_is_dispatched(replica: Make) -> None:
    master, slave = await pair(replica)
    for _ in range(20):
        master.put(7)
    await slave.caught_up(master)
    assert slave.log() == master.log()
    await eventually(lambda: slave.store.reputed.value == master.store.log.wrote.value)
    assert slave.store.reader.get("T", 1, 0, 3, 1 << 20).status is not None


async def test_a_slave_goes_on_where_it_stopped(replica: Make) -> None:
    master, slave = await pair(replica)
    await slave.stop()
    master.put(30)
    await slave.follow(master)
    await slave.caught_up(master)
    assert slave.log() == master.log()
    assert not list(slave.store_config.directory.glob("resync-*"))


async def test_the_slave_comes_back_to_a_master_that_was_restarted(replica: Make) -> None:
    master, slave = await pair(replica)
    await master.stop()
    await eventually(lambda: slave.slave.state.fault != "")
    await master.lead()
    assert master.master.epoch == 2
    master.put(5)
    await slave.caught_up(master)
    assert slave.log() == master.log()
    assert [entry.epoch for entry in slave.store.epochs.table.entries] == [1, 2]
    assert slave.slave.state.fault == ""


async def test_a_slave_ahead_is_cut_back(replica: Make) -> None:
    master, slave = await pair(replica)
    end = master.store.log.wrote.value
    await slave.stop()
    master.put(5)
    lost = master.log()[end:]
    await master.stop()
    await slave.open()
    slave.store.append_raw(end, lost)
    slave.store.flush()
    await slave.stop()
    await master.open()
    master.store.truncate(end)
    await master.stop()
    await master.lead()
    master.put(3)
    await slave.follow(master)
    await slave.caught_up(master)
    assert slave.log() == master.log()
    assert not slave.log().startswith(master.log()[:end] + lost[:300])


async def test_a_slave_that_knows_more_confirmed_than_the_master_has_is_not_cut(
    replica: Make,
) -> None:
    master, slave = await pair(replica, **SYNC)
    held = slave.log()
    await master.stop()
    await slave.stop()
    await master.open()
    master.store.truncate(master.store.log.wrote.value // 2)
    await master.stop()
    await master.lead()
    await slave.follow(master)
    reason = await refused(slave, "has confirmed bytes")
    assert slave.log() == held
    assert master.master.admission() == reason


async def out_of_range(make: Make) -> tuple[Replica, Replica, bytes]:
    """A master whose log begins behind the end of its slave's, the slave, which is stopped, and
    the slave's log."""
    master, slave = await pair(make, file_size=4096)
    old = slave.log()
    await slave.stop()
    for _ in range(12):
        master.put(10)
    await master.confirmed(master.store.log.wrote.value)
    await eventually(lambda: master.store.log.flushed.value == master.store.log.wrote.value)
    master.store.log.drop_before(8192)
    master.store.epochs.truncate_prefix(8192)
    return master, slave, old


async def test_a_slave_out_of_range_starts_over_and_keeps_its_old_log(replica: Make) -> None:
    master, slave, old = await out_of_range(replica)
    await slave.follow(master)
    await slave.caught_up(master)
    assert slave.store.log.min_offset == 8192
    assert slave.log() == master.log()
    (aside,) = slave.store_config.directory.glob("resync-*")
    assert (aside / "commitlog" / f"{0:020}").read_bytes()[:300] == old[:300]
    before = slave.slave.members()[-1].incarnation
    assert before
    await eventually(lambda: master.master.members()[1].incarnation == before)


async def test_a_set_aside_that_the_disk_breaks_off_is_told_and_ended_by_a_restart(
    replica: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is tried again in between: each try would be a new incarnation, of the same log."""
    master, slave, old = await out_of_range(replica)
    rename, state = RealFileSystem.rename, slave.store_config.directory / "tandemlog"
    kept: list[bytes] = []
    attempts: list[ReplicationSlave] = []
    one_stream = ReplicationSlave._one_stream

    async def counted(each: ReplicationSlave) -> None:
        attempts.append(each)
        await one_stream(each)

    def broken(files: RealFileSystem, source: Path, target: Path) -> None:
        if "resync-" in str(target):
            kept.append((state / "replication.json").read_bytes())
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(source))
        rename(files, source, target)

    monkeypatch.setattr(RealFileSystem, "rename", broken)
    monkeypatch.setattr(ReplicationSlave, "_one_stream", counted)
    await slave.follow(master)
    reason = await refused(slave, "Input/output error")
    assert "restart the node" in reason
    assert slave.slave.members()[-1].state == READ_ONLY
    await eventually(lambda: len(attempts) >= 3)
    assert caplog.text.count("following the master failed") == 1
    assert slave.slave.members()[-1].detail == reason
    assert len(kept) == 1
    assert (state / "replication.json").read_bytes() == kept[0]
    monkeypatch.undo()
    await slave.stop()
    await slave.follow(master)
    await slave.caught_up(master)
    assert slave.log() == master.log()
    (aside,) = slave.store_config.directory.glob("resync-*")
    assert (aside / "commitlog" / f"{0:020}").read_bytes()[:300] == old[:300]


async def test_a_foreign_cluster_and_a_taken_name_are_refused(replica: Make) -> None:
    master, _ = await pair(replica)
    stranger = replica("x", cluster_id="another")
    await stranger.follow(master)
    assert "'another'" in await refused(stranger, "this is cluster 'cluster'")
    twin = replica("twin", called="s")
    await twin.follow(master)
    assert "give every node its own node_id" in await refused(twin, "node id 's' is in use")
    namesake = replica("namesake", called="m")
    await namesake.follow(master)
    await refused(namesake, "the master's own")


async def test_another_file_size_is_refused_where_there_is_data(replica: Make) -> None:
    master, slave = replica("m", file_size=8192), replica("s", file_size=4096)
    await master.lead()
    master.put()
    await slave.open()
    slave.store.append_raw(0, master.log())
    slave.store.flush()
    await slave.stop()
    await slave.follow(master)
    assert "have 4096 bytes, the master's have 8192" in await refused(slave, "commit log files")


async def _copied(replica: Make, spoil: int | None) -> tuple[Replica, Replica, bytes]:
    """A slave whose store is a copy of the master's without epochs, as RocketMQ leaves it."""
    master, slave = replica("m"), replica("s", checksum_block_bytes=1000, proof_bytes=500)
    await master.lead()
    for _ in range(5):
        master.put(10)
    await slave.open()
    data = bytearray(master.log()[:8000])
    if spoil is not None:
        data[spoil] ^= 1
    slave.store.append_raw(0, bytes(data))
    slave.store.flush()
    await slave.stop()
    await slave.follow(master)
    await slave.caught_up(master)
    return master, slave, bytes(data)


async def test_a_copy_of_the_masters_store_is_proven_and_goes_on(replica: Make) -> None:
    master, slave, _ = await _copied(replica, None)
    assert slave.log() == master.log()
    assert slave.store.epochs.table == master.store.epochs.table
    assert not list(slave.store_config.directory.glob("resync-*"))


async def test_a_copy_that_differs_late_is_cut_there(replica: Make) -> None:
    master, slave, _ = await _copied(replica, 5500)
    assert slave.log() == master.log()
    assert not list(slave.store_config.directory.glob("resync-*"))


async def test_a_copy_that_differs_from_the_start_is_set_aside(replica: Make) -> None:
    master, slave, data = await _copied(replica, 5)
    assert slave.log() == master.log()
    (aside,) = slave.store_config.directory.glob("resync-*")
    assert (aside / "commitlog" / f"{0:020}").read_bytes()[:50] == data[:50]


async def test_equal_epoch_tables_over_other_bytes_are_found_out(replica: Make) -> None:
    master, slave = replica("m"), replica("s", checksum_block_bytes=1000)
    await master.lead()
    for _ in range(5):
        master.put(10)
    await slave.open()
    data = bytearray(master.log()[:6000])
    data[5900] ^= 1
    slave.store.append_raw(0, bytes(data))
    slave.store.epochs.replace(EpochTable(master.store.epochs.table.entries))
    slave.store.flush()
    await slave.stop()
    await slave.follow(master)
    await slave.caught_up(master)
    assert slave.log() == master.log()


async def two_terms(make: Make, **settings: object) -> tuple[Replica, Replica]:
    """A master in its second term, with bytes of both, and a slave that has caught up."""
    master, slave = await pair(make, **settings)
    await master.stop()
    await master.lead()
    await slave.caught_up(master)
    await eventually(lambda: master.master.admission() is None)
    end = master.put(5)
    await master.confirmed(end)
    await slave.caught_up(master)
    return master, slave


def epoch_files(replica: Replica) -> list[Path]:
    directory = replica.store_config.directory
    return [directory / "epochFileCheckpoint", directory / "epochFileCheckpoint.bak"]


async def test_a_slave_whose_last_epoch_is_damaged_compares_its_log(replica: Make) -> None:
    """By the table before it the log would seem to differ, below what is confirmed: an alarm."""
    master, slave = await two_terms(replica)
    await slave.stop()
    epochs, backup = epoch_files(slave)
    epochs.write_bytes(b"damaged")
    backup.write_bytes(EpochTable(slave.store.epochs.table.entries[:1]).encode())
    await slave.follow(master)
    assert slave.store.epochs.table != master.store.epochs.table
    master.put(5)
    await slave.caught_up(master)
    assert master.master.group.alarms == {}
    assert slave.store.epochs.table == master.store.epochs.table


async def goes_on_in_sync(master: Replica, slave: Replica) -> None:
    """A sync put is taken and confirmed, and nobody raises an alarm."""
    await eventually(lambda: master.master.admission() is None)
    end = master.put(5)
    await master.confirmed(end)
    await slave.caught_up(master)
    assert master.master.group.alarms == {}
    assert slave.log() == master.log()


async def test_a_master_whose_epoch_file_is_damaged_goes_on_with_its_slave(replica: Make) -> None:
    """Without its last term the slave would seem to hold bytes that the master lost."""
    master, slave = await two_terms(replica, **SYNC)
    held = slave.log()
    await master.stop()
    epoch_files(master)[0].write_bytes(b"damaged")
    await master.lead()
    assert "damaged" in master.store.epochs.note
    await goes_on_in_sync(master, slave)
    assert slave.log()[: len(held)] == held
    assert epoch_files(master)[0].read_bytes() == epoch_files(master)[1].read_bytes()


@pytest.mark.parametrize("damage", ["damaged", "gone"])
async def test_a_master_without_an_epoch_file_takes_that_of_its_slave(
    replica: Make, damage: str
) -> None:
    """As the error says, and the alarm that this is without it."""
    master, slave = await two_terms(replica, **SYNC)
    held = slave.log()
    await master.stop()
    for path in epoch_files(master):
        if damage == "damaged":
            path.write_bytes(b"damaged")
        else:
            path.unlink()
    if damage == "damaged":
        with pytest.raises(CorruptStoreError, match="on a master from a slave that was in sync"):
            await master.lead()
    else:
        await master.lead()
        assert "copy the slave's to it" in await refused(slave, "has confirmed bytes")
        assert slave.log() == held
        await master.stop()
    await slave.stop()
    shutil.copy(epoch_files(slave)[0], epoch_files(master)[0])
    await master.lead()
    await slave.follow(master)
    await goes_on_in_sync(master, slave)


async def test_a_slave_does_without_its_epoch_file(replica: Make) -> None:
    master, slave = await two_terms(replica, **SYNC)
    held = slave.log()
    await slave.stop()
    for path in epoch_files(slave):
        path.unlink()
    await slave.follow(master)
    await eventually(lambda: master.master.admission() is None)
    assert slave.log() == held
    assert slave.store.epochs.table == master.store.epochs.table
    assert not list(slave.store_config.directory.glob("resync-*"))


async def test_a_sync_put_needs_the_slave_and_survives_the_masters_disk(replica: Make) -> None:
    master, slave = replica("m", **SYNC), replica("s", **SYNC)
    await master.lead()
    assert "min_in_sync is 2" in str(master.master.admission())
    await slave.follow(master)
    await eventually(lambda: master.master.admission() is None)
    end = master.put(20)
    await master.confirmed(end)
    assert slave.store.log.flushed.value >= end
    log = master.log()
    await master.stop()
    master.wipe()
    await slave.stop()
    await slave.lead()
    assert slave.log()[: len(log)] == log
    assert slave.master.epoch == 2
    await master.follow(slave)
    await eventually(lambda: slave.master.admission() is None)
    end = slave.put(5)
    await slave.confirmed(end)
    await master.caught_up(slave)
    assert master.log() == slave.log()


async def test_a_master_that_lost_its_disk_does_not_cut_its_slave(replica: Make) -> None:
    master, slave = await pair(replica, **SYNC)
    held = slave.log()
    await master.stop()
    master.wipe()
    await master.lead()
    master.put(2)
    assert "with another store" in await refused(slave, "with another store")
    assert slave.log() == held
    assert "with another store" in str(master.master.admission())


async def test_without_its_slave_a_sync_master_takes_no_puts(replica: Make) -> None:
    master, slave = await pair(replica, **SYNC)
    await eventually(lambda: master.master.admission() is None)
    await slave.stop()
    await eventually(lambda: master.master.admission() is not None)
    end = master.put()
    await eventually(lambda: master.master.members()[1].lag_seconds > 1.0)
    assert master.store.confirmed.value < end
    assert master.master.members()[1].in_sync, "the set never shrinks below min_in_sync"
    await slave.follow(master)
    await master.confirmed(end)


async def test_a_slave_whose_disk_fails_stops_acknowledging_and_says_so(
    replica: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = await pair(replica, **SYNC)

    def fails() -> int:
        raise FlushFailedError("fdatasync of the log failed: EIO")

    monkeypatch.setattr(slave.store, "flush", fails)
    end = master.put()
    await eventually(lambda: master.master.members()[1].state == "read-only")
    row = master.master.members()[1]
    assert "EIO" in row.detail
    assert row.flushed_offset < end
    assert master.store.confirmed.value < end
    assert slave.slave.members()[-1].state == "read-only"
    assert master.master.admission() is not None


async def test_tables_and_members_reach_the_slave(replica: Make) -> None:
    master, slave = await pair(replica)
    master.store.topics.create(TopicConfig("Other", 2, 2), 1)
    master.store.groups.ensure("G", 1)
    master.store.consumer_offsets.commit("G", "T", 1, 3)
    master.master.metadata_changed()
    await eventually(lambda: slave.store.topics.get("Other") is not None)
    await eventually(lambda: slave.store.consumer_offsets.offset("G", "T", 1) == 3)
    assert slave.store.groups.names() == ["G"]
    await eventually(lambda: len(slave.slave.members()) == 2)
    seen = slave.slave.members()[0]
    assert (seen.node_id, seen.state, seen.endpoint) == ("m", "running", master.endpoint)
    await eventually(lambda: slave.slave.members()[-1].state == "in-sync")


async def test_two_slaves_each_get_everything(replica: Make) -> None:
    master, first = await pair(replica)
    second = replica("t")
    await second.follow(master)
    for _ in range(10):
        master.put(10)
    for slave in (first, second):
        await slave.caught_up(master)
        assert slave.log() == master.log()
    await eventually(lambda: all(row.in_sync for row in master.master.members()))


async def test_a_slave_of_a_slave_is_told_where_the_master_is(replica: Make) -> None:
    master, slave = await pair(replica)
    server = aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    slave.slave.servicer.add_to(server)
    await server.start()
    lost = replica("x")
    slave.port = port
    await lost.follow(slave)
    assert master.endpoint in await refused(lost, "s is a slave")
    await server.stop(None)

"""What a node remembers, as text and as a file."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.ha.config import HaConfig, Role
from tandemlog_server.ha.errors import StateFileError
from tandemlog_server.ha.master.term import next_epoch
from tandemlog_server.ha.replication_file import StateFile, new_incarnation
from tandemlog_server.ha.state import (
    HaState,
    InSyncRecord,
    Member,
    decode_state,
    encode_state,
    started_over,
)
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import DiskFullError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.state_files.restored import Restored, RestoredFile
from tandemlog_server.storage.store_paths import StorePaths
from tandemlog_server.storage.tools.verify import verify

A, B = Member("a", "1"), Member("b", "2")
STATE = HaState("c", "n", "i", 5, A, InSyncRecord(4, 9, frozenset({A, B}), unheard=frozenset({B})))
ROOT = Path("/store")


@pytest.fixture
def files() -> MemoryFiles:
    made = MemoryFiles()
    made.make_directory(ROOT)
    return made


def test_a_set_of_an_older_version_is_settled() -> None:
    text = encode_state(STATE).replace(b',\n    "settled": true', b"")
    assert b"settled" not in text
    assert decode_state(text) == STATE


def test_a_state_comes_back() -> None:
    begun = replace(STATE, record=replace(STATE.record, settled=False))
    assert decode_state(encode_state(begun)) == begun
    assert decode_state(encode_state(STATE)) == STATE
    fresh = HaState("c", "n", "i")
    assert decode_state(encode_state(fresh)) == fresh


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"cluster_id": 1}', b"\xff"])
def test_a_damaged_state_is_an_error(data: bytes) -> None:
    with pytest.raises(StateFileError, match="not readable"):
        decode_state(data)


def test_a_new_store_gets_an_identity_that_lasts(files: MemoryFiles) -> None:
    config = HaConfig("c", "n")
    first = StateFile(ROOT, files).load(config)
    assert (first.cluster_id, first.node_id, first.accepted_epoch) == ("c", "n", 0)
    files.crash()
    assert StateFile(ROOT, files).load(config) == first


def test_what_was_saved_survives_a_power_cut(files: MemoryFiles) -> None:
    file = StateFile(ROOT, files)
    file.save(STATE)
    file.save(replace(STATE, accepted_epoch=6))
    files.crash()
    assert file.load(HaConfig("c", "n")).accepted_epoch == 6


def test_a_restored_store_begins_above_the_epochs_that_were_cut_from_its_log(
    files: MemoryFiles,
) -> None:
    """Readers have seen them, and believe no master of an epoch that is not higher."""
    RestoredFile(StorePaths(ROOT).restored, files).save(Restored("archive", 0, 100, 9))
    file = StateFile(ROOT, files)
    state = file.load(HaConfig("c", "n"))
    assert state.accepted_epoch == 9
    assert next_epoch(EpochTable((EpochEntry(7, 0),)), state) == 10
    file.save(replace(state, accepted_epoch=12))
    assert file.load(HaConfig("c", "n")).accepted_epoch == 12


@pytest.mark.parametrize(("cluster", "node"), [("other", "n"), ("c", "other")])
def test_the_store_of_another_is_refused(files: MemoryFiles, cluster: str, node: str) -> None:
    file = StateFile(ROOT, files)
    file.save(STATE)
    with pytest.raises(StateFileError, match="this store belongs to") as refused:
        file.load(HaConfig(cluster, node))
    assert str(file.path) in str(refused.value)


def test_a_damaged_file_is_named(files: MemoryFiles) -> None:
    file = StateFile(ROOT, files)
    file.save(STATE)
    files.atomic_replace(file.path, b"{")
    with pytest.raises(StateFileError, match=r"replication\.json: the replication state"):
        file.load(HaConfig("c", "n"))


def test_a_full_disk_is_named_with_the_way_out(files: MemoryFiles) -> None:
    """A node that is started on it says what it could not write."""
    file = StateFile(ROOT, files)
    file.save(STATE)
    files.fail("atomic_replace", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError, match=r"replication\.json cannot be written.*free some"):
        file.save(replace(STATE, accepted_epoch=7))
    assert file.load(HaConfig("c", "n")) == STATE


def test_incarnations_differ() -> None:
    assert new_incarnation() != new_incarnation()


def test_verify_knows_the_file_and_names_it_where_it_is_damaged() -> None:
    files = MemoryFiles()
    settings = StoreConfig(directory=ROOT)
    MessageStore.open(settings, files=files).close()
    file = StateFile(ROOT, files)
    for state in (STATE, HaState("c", "n", "i")):
        file.save(state)
        assert verify(settings, files).faults == []
    whole = encode_state(STATE)
    for damaged in (b"", whole[1:], whole.replace(b'"members"', b'"membess"'), b"[]"):
        files.atomic_replace(file.path, damaged)
        assert [each.file for each in verify(settings, files).faults] == [str(file.path)]


@pytest.mark.parametrize("role", [Role.MASTER, Role.SLAVE, Role.RELAY])
def test_a_store_of_an_elected_cluster_takes_no_other_role(files: MemoryFiles, role: Role) -> None:
    file = StateFile(ROOT, files)
    config = HaConfig("c", "n", role, master_endpoint="h:1")
    file.check_role(config)  # there is no state yet
    file.save(STATE)
    file.check_role(config)
    file.save(replace(STATE, cluster_uuid="u"))
    file.check_role(replace(config, role=Role.ELECTED))
    with pytest.raises(StateFileError, match=f"role would be {role.value}: put coordinator"):
        file.check_role(config)


def test_a_disk_that_starts_over_forgets_the_epochs_that_its_cluster_never_had() -> None:
    fresh = started_over(STATE, "j", 5)
    assert fresh == replace(STATE, incarnation="j")
    fresh = started_over(STATE, "j", 4)
    assert (fresh.accepted_epoch, fresh.followed, fresh.record.members) == (4, None, frozenset())

"""A master that is started on a full disk: told what could not be written, and nothing is lost."""

import errno
from dataclasses import replace

import pytest

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog_server.ha.config import HaConfig
from tandemlog_server.ha.master.term import begin_term
from tandemlog_server.ha.replication_file import StateFile
from tandemlog_server.storage.config import ConfirmSource, FlushMode
from tandemlog_server.storage.errors import StoreError

REPLICATED = replace(CONFIG, confirm=ConfirmSource.REPLICATION, flush=FlushMode.SYNC)
MESSAGES = 10
CALLS = ["pwrite", "open", "fdatasync", "fsync_directory", "rename", "atomic_replace"]


def begin(bench: Bench) -> None:
    """The term of a master, as a node begins it."""
    config = HaConfig("c", "n")
    file = StateFile(DIRECTORY, bench.files)
    begin_term(bench.store, file.load(config), file.save, config)


def acknowledged(bench: Bench) -> list[bytes]:
    """What consumers see once all that the log holds is confirmed."""
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.settle()
    return bench.bodies()


def stopped(*, power: bool) -> tuple[Bench, list[bytes]]:
    """A master that was killed, or whose machine was, and what it had acknowledged."""
    bench = Bench(REPLICATED)
    begin(bench)
    bench.put(MESSAGES)
    held = acknowledged(bench)
    assert len(held) == MESSAGES
    bench._abandon()
    if power:
        bench.files.crash()
    else:
        bench.files.kill()
    return bench, held


def start(bench: Bench) -> str:
    """Why it could not be; empty where it was."""
    try:
        bench.open()
    except StoreError as refused:
        return str(refused)
    try:
        begin(bench)
    except StoreError as refused:
        bench._abandon()
        bench.files.kill()
        return str(refused)
    return ""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
def test_a_start_of_which_any_write_is_refused_loses_nothing(call: str, power: bool) -> None:
    """Each in turn finds no room."""
    number, refused = 0, True
    while refused:
        bench, held = stopped(power=power)
        bench.files.fail(call, errno.ENOSPC, skip=number, times=1)
        why = start(bench)
        refused = bench.files._failures[0].times == 0
        bench.files.heal()
        if why:
            assert refused
            assert "disk" in why or "space" in why, why
            assert not start(bench)
        assert acknowledged(bench) == held
        assert bench.store.doubt == ""
        bench.put(1)
        number += 1
    assert number > 1

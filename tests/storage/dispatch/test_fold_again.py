"""A service's fold that missed a record gets it, without forgetting what it knows meanwhile."""

from dataclasses import replace

import pytest

from fakes.scrubbed_trio import turn
from fakes.stores import CONFIG, DIRECTORY, Bench
from fakes.waiting import come, put_waiting, ready_desk, waiting_put
from tandemlog_server.storage.scrub.log_mending import Patch

FILE = CONFIG.commit_log_file_size * 64
LOG = DIRECTORY / "commitlog" / f"{0:020d}"


def damaged() -> tuple[Bench, Patch]:
    """Delayed messages a, b, c; a is delivered. The record of b is flipped, and every snapshot of a
    fold is lost: the store opens without b."""
    bench = Bench(replace(CONFIG, commit_log_file_size=FILE, property_crc=True))
    put_waiting(bench, waiting_put(bench, "a", delay_ms=1_000))
    begin = bench.store.log.wrote.value
    put_waiting(bench, waiting_put(bench, "b", delay_ms=50_000))
    end = bench.store.log.wrote.value
    put_waiting(bench, waiting_put(bench, "c", delay_ms=60_000))
    bench.clock.advance(2)
    assert come(bench, ready_desk(bench)) == [b"a"]
    bench.settle()
    good = bytes(bench.store.log.view(begin, end - begin))
    turn(bench.files, LOG, begin + 90, 1)
    bench.store.close()
    for name in bench.files.listdir(DIRECTORY / "tandemlog/folds"):
        bench.files.unlink(DIRECTORY / "tandemlog/folds" / name)
    bench.files.unlink(DIRECTORY / "tandemlog/recovery.json")
    bench.open()
    bench.settle()
    return bench, Patch(begin, good)


def waiting(bench: Bench) -> int:
    return len(bench.store.delays.rows)


def test_a_delayed_message_comes_back_and_what_was_delivered_does_not() -> None:
    bench, patch = damaged()
    store = bench.store
    assert waiting(bench) == 1
    bench.clock.advance(1)
    desk = ready_desk(bench)
    assert come(bench, desk) == [b"a"]
    store.mend([patch])
    seen = set[int]()
    while store.reput.run_once():
        seen.add(waiting(bench))
    assert waiting(bench) == 2
    assert seen <= {1, 2}  # never 0 or 3: the delivered one does not wait again in between
    desk = ready_desk(bench)
    bench.clock.advance(70)
    assert come(bench, desk) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("ends", ["close", "crash", "kill"])
@pytest.mark.parametrize("dispatched", [False, True])
def test_what_a_stop_interrupts_is_done_at_the_next_open(ends: str, dispatched: bool) -> None:
    bench, patch = damaged()
    bench.store.persist()
    bench.store.mend([patch])
    if dispatched:
        bench.settle()
    if ends == "close":
        bench.reopen()
    elif ends == "crash":
        bench.crash()
    else:
        bench.kill()
    bench.settle()
    assert waiting(bench) == 2
    assert not bench.store.reput.behind
    bench.store.persist()
    assert bench.files.status(DIRECTORY / "tandemlog/mended.json") is None
    bench.crash()
    assert waiting(bench) == 2


def test_a_cut_meanwhile_leaves_no_fold_that_lacks_records() -> None:
    bench, patch = damaged()
    store = bench.store
    store.mend([patch])
    later = store.log.wrote.value
    bench.put(1)
    store.flush()
    store.truncate(later)
    bench.settle()
    assert waiting(bench) == 2

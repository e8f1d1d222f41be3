"""Random lives that end with the power: nothing flushed is lost, nothing comes twice."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from fakes.batches import Put, batch_of
from fakes.crashed_stores import assert_whole
from fakes.stores import CONFIG, Bench
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.config import FlushMode


def steps(random: Random) -> Iterator[str]:
    for _ in range(random.randrange(5, 30)):
        yield random.choice(["put", "put", "put", "flush", "dispatch", "persist", "mark"])


@pytest.mark.parametrize("seed", range(25))
def test_whatever_a_power_cut_leaves_nothing_flushed_is_lost(seed: int) -> None:
    random = Random(seed)
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC, buffered=seed % 3 == 1))
    acknowledged: list[bytes] = []
    for life in range(4):
        for number, step in enumerate(steps(random)):
            _step(bench, step, random, life * 100 + number)
        durable = bench.store.log.flushed.value
        bench.store.reput.run_to()
        acknowledged = _readable(bench)
        if random.random() < 0.3:
            bench.kill()
        else:
            bench.crash(random)
        _check_life(bench, durable, acknowledged)
    assert_whole(bench)


def _step(bench: Bench, step: str, random: Random, number: int) -> None:
    if step == "put":
        puts = [
            Put("T", random.randrange(4), b"%d-%d" % (number, each) * random.randrange(1, 40))
            for each in range(random.randrange(1, 12))
        ]
        bench.store.put(batch_of(puts))
    elif step == "mark":
        # a producer sends again what it has no answer for, then goes on
        state = bench.store.producers.describe("p")
        last = state.last_sequence if state is not None else -1
        for sequence in range(max(last, 0), last + 2):
            bench.put_marked(ProducerMark("p", 0, sequence, 0, 3), 3)
    elif step == "flush":
        bench.store.flush()
    elif step == "dispatch":
        bench.store.reput.run_to()
    else:
        bench.store.persist()


def _readable(bench: Bench) -> list[bytes]:
    return [body for queue_id in range(4) for body in bench.bodies(queue_id=queue_id)]


def _check_life(bench: Bench, durable: int, acknowledged: list[bytes]) -> None:
    store = bench.store
    assert store.log.wrote.value >= durable
    assert store.recovery.damages == []
    left = _readable(bench)
    for body in set(acknowledged):
        assert left.count(body) >= acknowledged.count(body)
    sequences = [body for body in left if body.startswith(b"p-")]
    assert len(sequences) == len(set(sequences))

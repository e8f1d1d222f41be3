"""Mutated frames of the replication stream, on both sides, in process."""

import time
from random import Random

import pytest

from fuzz import corpus, settings
from fuzz.situations import SITUATIONS, the_master
from fuzz.trials import master_hears, slave_hears, to_master, to_slave

pytestmark = pytest.mark.fuzz


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_slave_survives_any_frame(name: str) -> None:
    found: dict[str, tuple[str, list[bytes]]] = {}
    deadline = time.monotonic() + settings.seconds("frames") * 0.6 / len(SITUATIONS)
    number = 0
    while time.monotonic() < deadline:
        number += 1
        frames = to_slave(Random(settings.SEED << 32 | number), name)
        wrong = slave_hears(name, frames)
        if wrong:
            found.setdefault(corpus.kind_of(wrong), (wrong, frames))
    print(f"fuzz: {number} conversations with a slave: {name}")
    assert not found, _saved("slave-frames", name, found)


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_master_survives_any_stranger(name: str) -> None:
    found: dict[str, tuple[str, list[bytes]]] = {}
    deadline = time.monotonic() + settings.seconds("frames") * 0.4 / len(SITUATIONS)
    number = 0
    while time.monotonic() < deadline:
        number += 1
        frames = to_master(Random(settings.SEED << 32 | number), name)
        wrong = master_hears(the_master(), frames)
        if wrong:
            found.setdefault(corpus.kind_of(wrong), (wrong, frames))
    print(f"fuzz: {number} conversations with a master: {name}")
    assert not found, _saved("master-frames", name, found)


def _saved(kind: str, name: str, found: dict[str, tuple[str, list[bytes]]]) -> str:
    lines = [f"seed {settings.SEED}:"]
    for wrong, frames in found.values():
        packed = [corpus.pack(frame) for frame in frames]
        path = corpus.save(kind, wrong, seed=settings.SEED, situation=name, frames=packed)
        lines.append(f"{wrong}\n    replay: pytest tests/fuzz/test_corpus.py -k {path.stem}")
    return "\n".join(lines)

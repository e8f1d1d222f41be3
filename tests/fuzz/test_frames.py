"""Mutated frames of the replication stream, on both sides, in process."""

import time
from collections.abc import Callable
from functools import partial
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
    assert not found, _saved("slave-frames", name, found, lambda part: slave_hears(name, part))


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
    hears = partial(master_hears, the_master())
    assert not found, _saved("master-frames", name, found, hears)


def _saved(
    kind: str,
    name: str,
    found: dict[str, tuple[str, list[bytes]]],
    hears: Callable[[list[bytes]], str],
) -> str:
    lines = [f"seed {settings.SEED}:"]
    for wrong, frames in found.values():
        packed = [corpus.pack(frame) for frame in _shortest(hears, wrong, frames)]
        path = corpus.save(kind, wrong, seed=settings.SEED, situation=name, frames=packed)
        lines.append(f"{wrong}\n    replay: pytest tests/fuzz/test_corpus.py -k {path.stem}")
    return "\n".join(lines)


def _shortest(hears: Callable[[list[bytes]], str], wrong: str, frames: list[bytes]) -> list[bytes]:
    """The beginning of the conversation that is enough for the same."""
    for count in range(1, len(frames)):
        if corpus.kind_of(hears(frames[:count])) == corpus.kind_of(wrong):
            return frames[:count]
    return frames

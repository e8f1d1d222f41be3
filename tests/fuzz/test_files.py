"""Several damages at once in the files of a store: typed errors, no hang, never other bytes."""

import time
from random import Random
from typing import Any

import pytest

from fuzz import corpus, settings
from fuzz.damage import STORES, a_store, damages, suffer

pytestmark = pytest.mark.fuzz


@pytest.mark.parametrize("name", STORES)
def test_a_store_survives_what_a_disk_does(name: str) -> None:
    store = a_store(name)
    found: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    deadline = time.monotonic() + settings.seconds("files") / len(STORES)
    number = 0
    while time.monotonic() < deadline:
        number += 1
        what = damages(Random(settings.SEED << 32 | number), store) if number > 1 else []
        wrong = suffer(name, what)
        if wrong:
            found.setdefault(corpus.kind_of(wrong), (wrong, what))
    print(f"fuzz: {number} damaged stores: {name}")
    lines = [f"seed {settings.SEED}:"]
    for wrong, what in found.values():
        path = corpus.save("store", wrong, seed=settings.SEED, store=name, damages=what)
        lines.append(f"{wrong}\n    replay: pytest tests/fuzz/test_corpus.py -k {path.stem}")
    assert not found, "\n".join(lines)

"""Mutated requests of every method against a master and a slave: nothing breaks, nothing stands."""

import asyncio
import time
from pathlib import Path

import pytest

from fuzz import settings
from fuzz.campaign import Campaign, probed
from fuzz.methods import methods_of
from fuzz.nodes import MEMORY_GROWTH, Attacked, attacked
from fuzz.requests import RequestMaker

pytestmark = pytest.mark.fuzz

# A node that has just started grows by some 30 MB in its first 40,000 mutated calls, whichever they
# are (its threads' heaps, gRPC's buffers), and by nothing in the next 80,000.
WARM_CALLS = 40_000
COLD_BYTES = 64 << 20
REST_S = 20.0


def test_no_request_breaks_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = settings.seconds("rpc")
    with attacked(tmp_path) as target:
        methods = methods_of(target.cluster.master.endpoint)
        assert len(methods) >= 19, "reflection does not name every method"
        campaign = Campaign(RequestMaker(methods, settings.SEED), target)
        # what a first call of each kind brings into memory is not what calls leave there
        asyncio.run(campaign.run(budget / 3))
        before, warm = target.memory(), campaign.done
        cold = {name for name in before if campaign.asked[name] < WARM_CALLS}
        start = time.monotonic()
        with probed(target, tmp_path) as pauses:
            asyncio.run(campaign.run(budget * 2 / 3))
        took = time.monotonic() - start
        longest = asyncio.run(campaign.confirm(pauses))
        slowest = max((pause for each in pauses.values() for _, pause in each), default=0.0)
        with capsys.disabled():
            print(
                f"\nfuzz: seed={settings.SEED} calls={campaign.done} "
                f"per_second={(campaign.done - warm) / took:.0f} {dict(campaign.statuses)} "
                f"longest_wait_ms={slowest * 1000:.0f} alone_ms={longest * 1000:.0f}"
            )
        most = {
            name: MEMORY_GROWTH * held + (COLD_BYTES if name in cold else 0)
            for name, held in before.items()
        }
        after = _rested(target, most)
        with capsys.disabled():
            print(f"fuzz: answers={len(campaign.kinds)} memory before {before} after {after}")
        lines = campaign.save()
        assert not lines, f"seed {settings.SEED}:\n" + "\n".join(lines)
        target.check(campaign.done)
        for name, held in after.items():
            assert held <= most[name], f"the {name} holds {held}, {before} before"
        target.check_stores()


def _rested(target: Attacked, most: dict[str, float]) -> dict[str, int]:
    """Memory once it is back, or after a rest."""
    deadline = time.monotonic() + min(REST_S, settings.MINUTES * 30)
    while True:
        after = target.memory()
        if all(held <= most[name] for name, held in after.items()) or time.monotonic() > deadline:
            return after
        time.sleep(0.2)

"""Mutated requests of every method against a master and a slave: nothing breaks, nothing stands."""

import asyncio
import time
from pathlib import Path

import pytest

from fuzz import settings
from fuzz.campaign import Campaign, probed
from fuzz.methods import methods_of
from fuzz.nodes import Attacked, attacked
from fuzz.requests import RequestMaker
from tandemlog_server.node.process.memory_at_rest import REST_S

pytestmark = pytest.mark.fuzz

# Each node is looked at when it has rested, before and after: while it works it keeps what it has
# freed (process/memory_at_rest.py), so what it holds then says what was asked last. Before, it has
# been asked what brings every part of it into memory: modules, stacks of threads, gRPC's buffers.
WARM_SHARE = 1 / 10
RESTED_S = 2.4 * REST_S
# Cycles gather until the collector comes, every 50,000 objects, and leave gaps among what stays:
# however slow the machine, and so however few the calls before, memory grows by 30 MB in the first
# 60,000 calls of any one method and then stands. All methods together also make topics and groups:
# another 29 MB in the next 370,000 calls. A request or response that stays is larger than that.
MEMORY_FREE = 48 << 20
MEMORY_PER_CALL = 80


def test_no_request_breaks_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = settings.seconds("rpc")
    with attacked(tmp_path) as target:
        methods = methods_of(target.cluster.master.endpoint)
        assert len(methods) >= 19, "reflection does not name every method"
        campaign = Campaign(RequestMaker(methods, settings.SEED), target)
        # what a first call of each kind brings into memory is not what calls leave there
        asyncio.run(campaign.run(budget * WARM_SHARE))
        before, warm = _rested(target), campaign.done
        start = time.monotonic()
        with probed(target, tmp_path) as pauses:
            asyncio.run(campaign.run(budget * (1 - WARM_SHARE)))
        took = time.monotonic() - start
        longest = asyncio.run(campaign.confirm(pauses))
        slowest = max((pause for each in pauses.values() for _, pause in each), default=0.0)
        with capsys.disabled():
            print(
                f"\nfuzz: seed={settings.SEED} calls={campaign.done} "
                f"per_second={(campaign.done - warm) / took:.0f} {dict(campaign.statuses)} "
                f"longest_wait_ms={slowest * 1000:.0f} alone_ms={longest * 1000:.0f}"
            )
        after = _rested(target)
        with capsys.disabled():
            print(f"fuzz: answers={len(campaign.kinds)} memory before {before} after {after}")
        lines = campaign.save()
        assert not lines, f"seed {settings.SEED}:\n" + "\n".join(lines)
        target.check(campaign.done)
        for name, held in after.items():
            most = before[name] + MEMORY_FREE + MEMORY_PER_CALL * (campaign.done - warm)
            assert held <= most, f"the {name} holds {held} bytes, more than {most}; {before} before"
        target.check_stores()


def _rested(target: Attacked) -> dict[str, int]:
    """Memory of the nodes once they have given back what they had freed."""
    time.sleep(RESTED_S)
    return target.memory()

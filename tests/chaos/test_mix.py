"""A minute of faults on real nodes in network namespaces: `make chaos MINUTES=60` plays for longer.

It asserts nothing about speed. On a slow machine fewer faults are played in the time.
"""

from pathlib import Path

import pytest

from chaos.campaign import Campaign
from chaos.cluster import EMBEDDED
from chaos.faults import faults_for

pytestmark = [pytest.mark.cluster, pytest.mark.netns]

SECONDS = 56.0
"""After these no fault begins."""
MIX = (
    "master-alone-lasting",
    "switchover",
    "power-all",
    "kill-master",
    "pause-master-short",
    "mute-master",
    "kill-slave",
    "coordinator-paused",
    "flapping-master",
    "pause-master-long",
)


def test_no_fault_loses_repeats_or_takes_back_a_message(tmp_path: Path) -> None:
    by_name = {fault.name: fault for fault in faults_for(EMBEDDED)}
    campaign = Campaign(seed=1)
    faults = [by_name[name] for name in MIX if name in by_name]
    campaign.live(tmp_path, EMBEDDED, SECONDS, iter(faults))
    assert campaign.tally.findings == []
    assert campaign.tally.played[0].elections > 0, "25 s, several leases: also on a slow machine"

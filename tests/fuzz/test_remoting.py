"""Mutated frames of RocketMQ's clients: an answer with a sentence or a closed connection, and a
node that goes on as before."""

from pathlib import Path

import pytest

from fuzz import settings
from fuzz.door_campaign import Campaign
from fuzz.one_node import tracebacks
from fuzz.remoting_target import OPEN, RIGHTS, Target

pytestmark = pytest.mark.fuzz


@pytest.mark.parametrize("situation", [OPEN, RIGHTS])
async def test_no_frame_breaks_a_door(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, situation: str
) -> None:
    async with Target.running(tmp_path, situation) as target:
        campaign = Campaign(target, caplog.records)
        await campaign.run(settings.seconds("remoting") / 2)
        print(
            f"fuzz: {campaign.number} frames, {situation}; {target.answers} answers, "
            f"{len(target.kinds)} kinds"
        )
        assert not campaign.found, await campaign.saved()
        assert len(target.kinds) > 40, "the frames come nowhere"
        await target.check()
        await target.rest()
        await target.verify()
    assert tracebacks(caplog.records) == []

"""Mutated calls of clients of the 5.x API: an answer with a sentence, or none where the client has
left, and a node that goes on as before."""

from pathlib import Path

import pytest

from fuzz import settings
from fuzz.door_campaign import Campaign
from fuzz.messaging_target import MessagingTarget
from fuzz.one_node import tracebacks
from fuzz.remoting_target import OPEN, RIGHTS

pytestmark = pytest.mark.fuzz


@pytest.mark.parametrize("situation", [OPEN, RIGHTS])
async def test_no_call_breaks_a_door(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, situation: str
) -> None:
    async with MessagingTarget.running(tmp_path, situation) as target:
        campaign = Campaign(target, caplog.records)
        await campaign.run(settings.seconds("messaging") / 2)
        print(
            f"fuzz: {campaign.number} calls, {situation}; {target.answers} answers, "
            f"{len(target.kinds)} kinds"
        )
        assert not campaign.found, await campaign.saved()
        assert len(target.kinds) > 30, "the calls come nowhere"
        await target.check()
        await target.rest()
        await target.verify()
    assert tracebacks(caplog.records) == []

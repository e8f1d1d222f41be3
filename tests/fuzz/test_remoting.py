"""Mutated frames of RocketMQ's clients: an answer with a sentence or a closed connection, and a
node that goes on as before."""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fuzz import corpus, settings
from fuzz.one_node import tracebacks
from fuzz.remoting_frames import Frame
from fuzz.remoting_target import OPEN, RIGHTS, Target
from helpers.machine_speed import slowness

pytestmark = pytest.mark.fuzz

WORKERS = 8
AT_ONCE = 24
"""Frames of one connection, before one that may end it."""
PAUSE_S = 0.25
TRIES = 3
FINDINGS_AT_MOST = 20


class Campaign:
    """Frames from number 0 on, by several connections side by side."""

    def __init__(self, target: Target, log: Sequence[logging.LogRecord]) -> None:
        self.target = target
        self._log = log
        self._logged = 0
        self.number = 0
        self.found: dict[str, tuple[str, list[Frame]]] = {}

    async def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        workers = [asyncio.create_task(self._work(deadline)) for _ in range(WORKERS)]
        await asyncio.gather(*workers)

    async def _work(self, deadline: float) -> None:
        while time.monotonic() < deadline and len(self.found) < FINDINGS_AT_MOST:
            frames = self._some()
            self.target.longest = 0.0
            wrong = await self._play(frames)
            if not wrong and self.target.longest > PAUSE_S * slowness():
                wrong = await self._pause(frames)
            if wrong:
                self.found.setdefault(corpus.kind_of(wrong), (wrong, frames))

    async def _play(self, frames: list[Frame]) -> str:
        """A traceback may be of another connection: `_fewer` tells."""
        wrong = await self.target.play(frames)
        fresh, self._logged = tracebacks(self._log[self._logged :]), len(self._log)
        return wrong or "".join(f"a traceback: {each}" for each in fresh[:1])

    def _some(self) -> list[Frame]:
        frames: list[Frame] = []
        while len(frames) < AT_ONCE:
            frames.append(self.target.frame(settings.SEED, self.number))
            self.number += 1
            if frames[-1].opaque is None:
                break
        return frames

    async def _pause(self, frames: list[Frame]) -> str:
        """A busy machine is slow too: what stands each time counts."""
        shortest = float("inf")
        for _ in range(TRIES):
            self.target.longest = 0.0
            await self.target.play(frames)
            shortest = min(shortest, self.target.longest)
        return f"the loop stood for {shortest:.1f} s" if shortest > PAUSE_S * slowness() else ""

    async def saved(self) -> str:
        lines = [f"seed {settings.SEED}:"]
        for wrong, frames in self.found.values():
            fewer = await self._fewer(wrong, frames)
            rows = [
                {"code": each.code, "opaque": each.opaque, "data": corpus.pack(each.data)}
                for each in fewer
            ]
            path = corpus.save(
                "remoting", wrong, seed=settings.SEED, situation=self.target.situation, frames=rows
            )
            lines.append(f"{wrong}\n    replay: pytest tests/fuzz/test_corpus.py -k {path.stem}")
        return "\n".join(lines)

    async def _fewer(self, wrong: str, frames: list[Frame]) -> list[Frame]:
        """One frame, if that is enough for the same."""
        for each in frames:
            if corpus.kind_of(await self._play([each])) == corpus.kind_of(wrong):
                return [each]
        return frames


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

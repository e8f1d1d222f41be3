"""A campaign against a door of RocketMQ's clients: trials by number, by several workers at once.

    number ─▶ trial (a frame, a call) ─▶ some of them over one connection ─▶ what was wrong
                                                  │
              a traceback in the log, an event loop that stood: wrong too ◀┘

What is found is tried again with fewer trials, and saved for the corpus.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from fuzz import corpus, settings
from fuzz.loop_watch import LoopWatch
from fuzz.one_node import tracebacks
from helpers.machine_speed import slowness

WORKERS = 8
AT_ONCE = 24
"""Trials of one connection, before one that may end it."""
PAUSE_S = 0.25
TRIES = 3
FINDINGS_AT_MOST = 20

TrialT = TypeVar("TrialT")


class Target(Protocol[TrialT]):
    """A node that trials must leave as it was. `kind` is that of its corpus, whose rows are in
    `rows`; `watch` says how long its event loop stood."""

    kind: str
    rows: str
    situation: str
    watch: LoopWatch

    def trial(self, seed: int, number: int) -> TrialT:
        """A function of both, and of what earlier answers have said."""

    def is_last(self, trial: TrialT) -> bool:
        """Whether its connection may end with it."""

    def row(self, trial: TrialT) -> dict[str, Any]:
        """As the corpus keeps it."""

    async def play(self, trials: Sequence[TrialT]) -> str:
        """What was wrong; empty where nothing was."""


class Campaign(Generic[TrialT]):
    """Trials from number 0 on, by several connections side by side."""

    def __init__(self, target: Target[TrialT], log: Sequence[logging.LogRecord]) -> None:
        self.target = target
        self._log = log
        self._logged = 0
        self.number = 0
        self.found: dict[str, tuple[str, list[TrialT]]] = {}

    async def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        workers = [asyncio.create_task(self._work(deadline)) for _ in range(WORKERS)]
        await asyncio.gather(*workers)

    async def _work(self, deadline: float) -> None:
        while time.monotonic() < deadline and len(self.found) < FINDINGS_AT_MOST:
            trials = self._some()
            self.target.watch.longest = 0.0
            wrong = await self._play(trials)
            if not wrong and self.target.watch.longest > PAUSE_S * slowness():
                wrong = await self._pause(trials)
            if wrong:
                self.found.setdefault(corpus.kind_of(wrong), (wrong, trials))

    async def _play(self, trials: list[TrialT]) -> str:
        """A traceback may be of another connection: `_fewer` tells."""
        wrong = await self.target.play(trials)
        fresh, self._logged = tracebacks(self._log[self._logged :]), len(self._log)
        return wrong or "".join(f"a traceback: {each}" for each in fresh[:1])

    def _some(self) -> list[TrialT]:
        trials: list[TrialT] = []
        while len(trials) < AT_ONCE:
            trials.append(self.target.trial(settings.SEED, self.number))
            self.number += 1
            if self.target.is_last(trials[-1]):
                break
        return trials

    async def _pause(self, trials: list[TrialT]) -> str:
        """A busy machine is slow too: what stands each time counts."""
        shortest = float("inf")
        for _ in range(TRIES):
            self.target.watch.longest = 0.0
            await self.target.play(trials)
            shortest = min(shortest, self.target.watch.longest)
        return f"the loop stood for {shortest:.1f} s" if shortest > PAUSE_S * slowness() else ""

    async def saved(self) -> str:
        lines = [f"seed {settings.SEED}:"]
        for wrong, trials in self.found.values():
            fewer = await self._fewer(wrong, trials)
            rows = {self.target.rows: [self.target.row(each) for each in fewer]}
            path = corpus.save(
                self.target.kind, wrong, seed=settings.SEED, situation=self.target.situation, **rows
            )
            lines.append(f"{wrong}\n    replay: pytest tests/fuzz/test_corpus.py -k {path.stem}")
        return "\n".join(lines)

    async def _fewer(self, wrong: str, trials: list[TrialT]) -> list[TrialT]:
        """One trial, if that is enough for the same."""
        for each in trials:
            if corpus.kind_of(await self._play([each])) == corpus.kind_of(wrong):
                return [each]
        return trials

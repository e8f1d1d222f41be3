"""The attack itself: calls by the thousand, what was wrong with them, and what stood still.

    maker ─▶ workers (some calls at a time) ─▶ oracle ─▶ findings ─▶ corpus
    a probe of each node beside it ─▶ calls that were open while its loop stood ─▶ each again, alone

A loop that stands makes every call slow, and a busy machine does so too. So a slow moment only
gives suspects: every call that was open then is made again, alone; one that is slow each time is a
finding. Each try waits longer for the machine to have its busy moment behind it.
"""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fuzz import corpus
from fuzz.caller import Caller
from fuzz.nodes import Attacked
from fuzz.oracle import finding, kind_of_answer
from fuzz.probe import Probe
from fuzz.requests import Call, RequestMaker
from helpers.machine_speed import slowness

WORKERS = 48
PAUSE_S = 0.050
SUSPECT_S = 0.100
SUSPECTS_AT_MOST = 60
TRIES = 12
REST_S = 0.1
FINDINGS_AT_MOST = 25


@dataclass
class Campaign:
    """Calls `first`.. until time or count is up; `findings` by what is wrong, each once; `kinds`
    of answers that there were: how deep the calls came."""

    maker: RequestMaker
    target: Attacked
    first: int = 0
    done: int = 0
    findings: dict[str, tuple[str, Call]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    kinds: set[str] = field(default_factory=set)
    history: list[tuple[float, float, int]] = field(default_factory=list)
    open: dict[int, float] = field(default_factory=dict)

    async def run(self, seconds: float, count: int = 1 << 60) -> None:
        """As many calls as the time allows, at most `count`."""
        deadline = time.monotonic() + seconds
        last = self.first + self.done + count
        self._next = self.first + self.done
        async with Caller(self.target.endpoints) as caller:
            workers = [
                asyncio.create_task(self._work(caller, deadline, last)) for _ in range(WORKERS)
            ]
            await asyncio.gather(*workers)

    async def _work(self, caller: Caller, deadline: float, last: int) -> None:
        while time.monotonic() < deadline and self._next < last and self._alive():
            number, self._next = self._next, self._next + 1
            call = self.maker.make(number)
            start = time.monotonic()
            self.open[number] = start
            await self._judge(caller, call)
            del self.open[number]
            self.history.append((start, time.monotonic(), number))
            self.done += 1

    async def _judge(self, caller: Caller, call: Call) -> str:
        method = self.maker.methods.get(call.path)
        outcome = await caller.call(call, method)
        self.statuses[outcome.status.name] += 1
        self.kinds.add(f"{call.path} {kind_of_answer(method, outcome)}")
        wrong = finding(call, method, outcome)
        if wrong and self._alive():
            self.add(wrong, call)
        return wrong

    def add(self, wrong: str, call: Call) -> None:
        """A finding, once for each method and kind of fault."""
        known = f"{call.path} {corpus.kind_of(wrong)}"
        if known not in self.findings and len(self.findings) < FINDINGS_AT_MOST:
            self.findings[known] = f"{call.path}: {wrong}", call

    def _alive(self) -> bool:
        dead = [name for name, node in self.target.nodes.items() if not node.alive]
        for number in self.open if dead else ():
            self.add(f"the {dead[0]} ended", self.maker.make(number))
        return not dead

    async def confirm(self, pauses: dict[str, list[tuple[float, float]]]) -> float:
        """Make again, alone, what was open in the longest pauses; the longest that came again."""
        longest = 0.0
        async with Caller(self.target.endpoints, 1) as caller:
            for node, moments in pauses.items():
                for number in self._suspects(node, moments):
                    call = self.maker.make(number)
                    took = await self._alone(caller, call)
                    longest = max(longest, took)
                    if took > PAUSE_S * slowness():
                        self.add(f"the loop of the {node} stood {took * 1000:.0f} ms", call)
        return longest

    def _suspects(self, node: str, moments: list[tuple[float, float]]) -> list[int]:
        worst = sorted((each for each in moments if each[1] > SUSPECT_S), key=lambda each: -each[1])
        found: dict[int, None] = {}
        for start, took in worst[:10]:
            for began, ended, number in self.history:
                overlap = min(ended, start + took) - max(began, start)
                if overlap > took / 2 and self.maker.make(number).node == node:
                    found[number] = None
        return list(found)[:SUSPECTS_AT_MOST]

    async def _alone(self, caller: Caller, call: Call) -> float:
        """The shortest of the longest pauses of some tries: what the call does each time."""
        shortest = 60.0
        method = self.maker.methods.get(call.path)
        for attempt in range(TRIES):
            await asyncio.sleep(attempt * REST_S)
            with Probe(self.target.endpoints[call.node]) as probe:
                await caller.call(call, method)
                await asyncio.sleep(0.02)
            shortest = min(shortest, probe.longest)
            if shortest <= PAUSE_S * slowness():
                break
        return shortest

    def save(self) -> list[str]:
        """Write the findings into the corpus; a line for each."""
        lines = []
        for wrong, call in self.findings.values():
            path = corpus.save(
                "rpc", wrong, seed=self.maker.seed, number=call.number, calls=[call.to_json()]
            )
            lines.append(f"{wrong}\n    replay: pytest tests/fuzz/test_corpus.py -k {path.stem}")
        return lines


@contextmanager
def probed(target: Attacked, folder: Path) -> Iterator[dict[str, list[tuple[float, float]]]]:
    """A probe of each node in a process of its own; afterwards (start, seconds) of slow calls."""
    found: dict[str, list[tuple[float, float]]] = {}
    probes = {}
    for name, endpoint in target.endpoints.items():
        with (folder / f"probe-{name}").open("wb") as out:
            program = [sys.executable, str(Path(__file__).with_name("probe.py")), endpoint, "20"]
            probes[name] = subprocess.Popen(program, stdout=out, stderr=subprocess.DEVNULL)
    try:
        yield found
    finally:
        for name, process in probes.items():
            process.kill()
            process.wait()
            lines = (folder / f"probe-{name}").read_text().splitlines()
            pairs = [line.split() for line in lines]
            found[name] = [(float(pair[0]), float(pair[1])) for pair in pairs if len(pair) == 2]

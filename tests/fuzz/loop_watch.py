"""How long the event loop of a node under test stood: no request may hold up all others."""

import asyncio

TICK_S = 0.01


class LoopWatch:
    """`longest`, in seconds, is the longest pause while `run` runs. Set it to 0 to begin again."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            start = loop.time()
            await asyncio.sleep(TICK_S)
            self.longest = max(self.longest, loop.time() - start - TICK_S)

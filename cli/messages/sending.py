"""The run of `put`: inputs become messages, their answers are told in order, and then the totals.

A message that cannot be one (too large, no JSON, …) is reported on stderr with its place, and the
others are sent: one bad line among a million must not keep the rest back. What is not about one
message (no such topic, no master) ends the run.
"""

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import MofNCompleteColumn, TextColumn

from tandemlog.errors import InvalidMessageError, InvalidTopicNameError, TandemlogError
from tandemlog.format.words import counted
from tandemlog.message import Message, SendResult
from tandemlog.produce.framing import join_keys
from tandemlog.produce.producer import AsyncProducer

from ..output.progress import progress_bar
from ..output.tables import Format, write_lines, write_rows
from ..shared.exit_codes import FAULT, USAGE
from ..shared.failures import CommandError, exit_code_of, text_of
from .inputs import ToMessage

GENERATE_BATCH = 20_000
GENERATE_BYTES = 16 << 20
MOST_SAID = 20
"""Lines that cannot be sent are said one by one up to so many."""


@dataclass(slots=True)
class Totals:
    """What became of the messages; `body_bytes` and `acknowledged` count the same ones."""

    sent: int = 0
    acknowledged: int = 0
    duplicates: int = 0
    body_bytes: int = 0
    started: float = 0.0

    def row(self, topic: str) -> dict[str, Any]:
        seconds = max(time.monotonic() - self.started, 1e-9)
        return {
            "topic": topic,
            "messages": self.acknowledged,
            "failed": self.sent - self.acknowledged,
            "duplicates": self.duplicates,
            "body_bytes": self.body_bytes,
            "seconds": round(seconds, 3),
            "messages_per_second": round(self.acknowledged / seconds),
            "mb_per_second": round(self.body_bytes / seconds / 1e6, 3),
        }


class Sending:
    """One run of the command. The totals say how far it came."""

    def __init__(
        self, producer: AsyncProducer, prototype: Message, *, wait: bool, form: Format
    ) -> None:
        self._producer = producer
        self._prototype = prototype
        self._wait = wait
        self._form = form
        self._totals = Totals(started=time.monotonic())
        self._waiting: deque[tuple[asyncio.Future[SendResult], int, str]] = deque()
        self._problem: TandemlogError | None = None
        self._problem_place = ""
        self._refused = 0

    async def inputs(
        self,
        inputs: AsyncIterator[tuple[str, bytes]],
        to_message: Callable[[], Awaitable[ToMessage]],
    ) -> None:
        """Every input is a message, and has the name of its place; results are printed in their
        order."""
        async with self._running(None) as progress:
            message_of = await to_message()
            async for place, text in inputs:
                await self._send(place, text, message_of)
                self._collect()
                progress()
                if self._problem is not None:
                    break
            await self._producer.flush()
            await asyncio.sleep(0)
            await self._collect_all()
            progress()
        self._finish(rows=self._form is Format.TABLE)

    async def generate(self, count: int, size: int) -> None:
        """`count` messages of `size` bytes; each begins with its number."""
        prototype = self._prototype
        keys, queue = prototype.keys, prototype.queue_id
        batch = max(1, min(GENERATE_BATCH, GENERATE_BYTES // max(size, 1)))
        async with self._running(count) as progress:
            for first in range(0, count, batch):
                number = min(batch, count - first)
                self._totals.sent += number
                try:
                    result = await self._producer.send_many(
                        prototype.topic,
                        generated_bodies(first, number, size),
                        keys=_column(keys if isinstance(keys, str) else join_keys(keys), number),
                        tags=_column(prototype.tags, number),
                        queues=None if queue is None else np.full(number, queue, np.int64),
                        sharding_keys=_column(prototype.sharding_key or "", number),
                        properties=dict(prototype.properties or {}) or None,
                        wait=self._wait,
                    )
                except TandemlogError as error:
                    self._problem = error
                    break
                self._totals.acknowledged += result.count
                self._totals.duplicates += result.duplicates
                self._totals.body_bytes += result.count * size
                progress()
        self._finish(rows=True)

    @contextlib.asynccontextmanager
    async def _running(self, total: int | None) -> AsyncIterator[Any]:
        """The producer open, and a progress bar on stderr if that is a terminal."""
        bar = progress_bar(MofNCompleteColumn(), TextColumn("{task.fields[rate]}/s"))
        async with self._producer:
            self._totals.started = time.monotonic()
            with bar:
                task = bar.add_task(f"put {self._prototype.topic}", total=total, rate="0")

                def show() -> None:
                    seconds = max(time.monotonic() - self._totals.started, 1e-9)
                    done = self._totals.acknowledged
                    bar.update(task, completed=done, rate=f"{done / seconds:,.0f}")

                yield show

    async def _send(self, place: str, text: bytes, message_of: ToMessage) -> None:
        """Send one input; what is wrong with it waits for its turn, so that results stay in
        order."""
        size = 0
        try:
            message = message_of(text)
            size = len(message.body)
            future = await self._producer.send(message, wait=self._wait)
        except TandemlogError as error:
            if not _is_about_one(error):
                self._stop(error, place)
                return
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
        self._totals.sent += 1
        self._waiting.append((future, size, place))

    def _collect(self) -> None:
        """Tell what has been answered, in order."""
        rows = []
        while self._waiting and self._waiting[0][0].done():
            future, size, place = self._waiting.popleft()
            problem = future.exception()
            if problem is None:
                result = future.result()
                self._totals.acknowledged += 1
                self._totals.duplicates += result.duplicate
                self._totals.body_bytes += size
                rows.append(_result_row(result))
            elif isinstance(problem, TandemlogError) and _is_about_one(problem):
                self._refuse(place, problem)
                rows.append({"place": place, "error": str(problem)})
            elif isinstance(problem, TandemlogError):
                self._stop(problem, place)
            else:
                raise problem
        if rows and self._form is Format.JSONL:
            self._write(rows)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        """Raises CommandError if nothing reads the answers any more: the rest is not sent."""
        try:
            write_lines(rows)
        except BrokenPipeError:
            sys.stdout = open("/dev/null", "w")  # noqa: SIM115 - lives to the end of the process
            raise CommandError(
                f"the reader of the answers has gone after {self._totals.acknowledged} "
                "acknowledged messages: the rest was not sent",
                FAULT,
            ) from None

    def _stop(self, problem: TandemlogError, place: str) -> None:
        """The first problem of this kind ends the run."""
        if self._problem is None:
            self._problem, self._problem_place = problem, f"{place}: "

    def _refuse(self, place: str, problem: TandemlogError) -> None:
        self._refused += 1
        if self._refused <= MOST_SAID:
            sys.stderr.write(f"tandemlog: {place}: {problem}\n")

    async def _collect_all(self) -> None:
        if self._waiting:
            await asyncio.wait([future for future, _, _ in self._waiting])
        self._collect()

    def _finish(self, *, rows: bool) -> None:
        totals, problem = self._totals, self._problem
        if rows and (totals.sent or problem is None):
            write_rows([totals.row(self._prototype.topic)], self._form)
        counts = f"{totals.acknowledged} acknowledged, {totals.sent - totals.acknowledged} not: "
        if problem is not None:
            place = self._problem_place if totals.sent else ""
            raise CommandError(
                f"{counts if totals.sent else ''}{place}{text_of(problem)}", exit_code_of(problem)
            )
        if self._refused:
            more = max(0, self._refused - MOST_SAID)
            above = "see above" + (f", and {more} more" if more else "")
            what = counted(self._refused, "message")
            raise CommandError(f"{counts}{what} could not be sent ({above})", USAGE)


def _is_about_one(problem: TandemlogError) -> bool:
    """Whether other messages may be sent all the same."""
    return isinstance(problem, InvalidMessageError) and not isinstance(
        problem, InvalidTopicNameError
    )


def generated_bodies(first: int, count: int, size: int) -> NDArray[np.uint8]:
    """u1[count, size]: the number in decimal digits from the left, then letters."""
    bodies = np.tile(np.resize(np.arange(97, 123, dtype=np.uint8), size), (count, 1))
    numbers = np.arange(first, first + count, dtype=np.int64)
    digits = min(12, size)
    for position in range(digits):
        bodies[:, position] = numbers // 10 ** (digits - 1 - position) % 10 + 48
    return bodies


def _column(value: str, count: int) -> list[str] | None:
    return [value] * count if value else None


def _result_row(result: SendResult) -> dict[str, Any]:
    return {
        "topic": result.topic,
        "queue_id": result.queue_id,
        "queue_offset": result.queue_offset,
        "physical_offset": result.physical_offset,
        "msg_id": result.msg_id,
        "store_timestamp": result.store_timestamp,
        "duplicate": result.duplicate,
    }

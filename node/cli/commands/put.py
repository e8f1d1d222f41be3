"""`tandemlog put`: lines of a file or of stdin as messages, or generated ones."""

import asyncio
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from tandemlog.errors import TandemlogError
from tandemlog.message import Message, SendResult
from tandemlog.produce.framing import join_keys
from tandemlog.produce.options import MAX_DELIVERY_TIMEOUT_MS, ProducerOptions
from tandemlog.produce.producer import AsyncProducer

from .. import exit_codes
from ..command import new_app
from ..exit_codes import epilog
from ..failures import CommandError, exit_code_of, one_line_errors
from ..options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    Endpoint,
    FormatOption,
    check_endpoints,
    connection_options,
    timeout_option,
)
from ..output import Format, error_console, write_lines, write_rows

READ_BYTES = 1 << 16
GENERATE_BATCH = 20_000
GENERATE_BYTES = 16 << 20
MAX_SIZE = 1 << 30
MAX_QUEUE = 65_535
DELIVERY_TIMEOUT_S = 30.0

PutTimeout = Annotated[
    float | None,
    timeout_option(
        "How many seconds to keep trying before giving up. "
        f"[default: {DEFAULT_TIMEOUT_S:g} to find the cluster, {DELIVERY_TIMEOUT_S:g} to deliver]",
        show_default=False,
    ),
]

app = new_app()


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


@app.command("put", epilog=epilog())
def put_command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="File with one message per line. Without FILE, or with -, lines are read from "
            "stdin.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="Key of every message; may be repeated."),
    ] = None,
    tag: Annotated[str, typer.Option("--tag", help="Tag of every message.")] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", help="Property of every message; may be repeated."
        ),
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option(
            "--queue",
            min=0,
            max=MAX_QUEUE,
            help="Queue for every message. [default: messages are spread over all queues]",
            show_default=False,
        ),
    ] = None,
    generate: Annotated[
        int | None,
        typer.Option(
            "--generate",
            metavar="COUNT",
            min=1,
            help="Send COUNT generated messages instead of reading FILE or stdin.",
        ),
    ] = None,
    size: Annotated[
        int,
        typer.Option(
            "--size",
            metavar="BYTES",
            min=0,
            max=MAX_SIZE,
            help="Size of the body of each generated message.",
        ),
    ] = 128,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="Wait only until the master has appended the messages, not for flush or replicas.",
        ),
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: PutTimeout = None,
) -> None:
    """Send messages: the lines of FILE or stdin, or generated ones.

    The command ends when all messages are acknowledged and prints one row of totals: topic,
    messages, failed, duplicates, body_bytes, seconds, messages_per_second, mb_per_second. With
    --format jsonl it prints one object for each line of the input instead: topic, queue_id,
    queue_offset, physical_offset, msg_id, store_timestamp, duplicate.
    """
    if generate is not None and file is not None:
        raise typer.BadParameter("give either --generate or FILE, not both")
    prototype = Message(
        topic,
        b"",
        keys=key or "",
        tags=tag,
        properties=_properties(properties or []),
        queue_id=queue,
    )
    options = ProducerOptions(
        connection=connection_options(timeout or DEFAULT_TIMEOUT_S),
        delivery_timeout_ms=min((timeout or DELIVERY_TIMEOUT_S) * 1000, MAX_DELIVERY_TIMEOUT_MS),
    )
    producer = AsyncProducer(check_endpoints(endpoint), options)
    with one_line_errors():
        put = _Put(producer, prototype, wait=not no_wait, form=form)
        asyncio.run(put.generate(generate, size) if generate is not None else put.lines(file))


def _properties(texts: list[str]) -> dict[str, str] | None:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--property must be NAME=VALUE, not {text!r}")
        found[name] = value
    return found or None


class _Put:
    """One run of the command; the first failure ends it, and the totals say how far it came."""

    def __init__(
        self, producer: AsyncProducer, prototype: Message, *, wait: bool, form: Format
    ) -> None:
        self._producer = producer
        self._prototype = prototype
        self._wait = wait
        self._form = form
        self._totals = Totals(started=time.monotonic())
        self._waiting: deque[tuple[asyncio.Future[SendResult], int]] = deque()
        self._problem: TandemlogError | None = None

    async def lines(self, file: Path | None) -> None:
        """Every line is a message; results are printed in the order of the lines."""
        async with self._running(None) as progress:
            async for line in lines_of(file):
                await self._send(line)
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
        batch = max(1, min(GENERATE_BATCH, GENERATE_BYTES // max(size, 1)))
        async with self._running(count) as progress:
            for first in range(0, count, batch):
                number = min(batch, count - first)
                self._totals.sent += number
                try:
                    result = await self._producer.send_many(
                        self._prototype.topic,
                        generated_bodies(first, number, size),
                        keys=_column(self._keys(), number),
                        tags=_column(self._prototype.tags, number),
                        queues=self._queues(number),
                        properties=dict(self._prototype.properties or {}) or None,
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
        console = error_console()
        bar = Progress(
            SpinnerColumn(),
            TextColumn("put {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}/s"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        async with self._producer:
            self._totals.started = time.monotonic()
            with bar:
                task = bar.add_task(self._prototype.topic, total=total, rate="0")

                def show() -> None:
                    seconds = max(time.monotonic() - self._totals.started, 1e-9)
                    done = self._totals.acknowledged
                    bar.update(task, completed=done, rate=f"{done / seconds:,.0f}")

                yield show

    async def _send(self, body: bytes) -> None:
        prototype = self._prototype
        message = Message(
            prototype.topic,
            body,
            keys=prototype.keys,
            tags=prototype.tags,
            properties=prototype.properties,
            queue_id=prototype.queue_id,
        )
        try:
            future = await self._producer.send(message, wait=self._wait)
        except TandemlogError as error:
            self._problem = self._problem or error
            return
        self._totals.sent += 1
        self._waiting.append((future, len(body)))

    def _collect(self) -> None:
        """Tell what has been answered, in order."""
        rows = []
        while self._waiting and self._waiting[0][0].done():
            future, size = self._waiting.popleft()
            problem = future.exception()
            if problem is None:
                result = future.result()
                self._totals.acknowledged += 1
                self._totals.duplicates += result.duplicate
                self._totals.body_bytes += size
                if self._form is Format.JSONL:
                    rows.append(_result_row(result))
            elif isinstance(problem, TandemlogError):
                self._problem = self._problem or problem
            else:
                raise problem
        if rows:
            write_lines(rows)

    async def _collect_all(self) -> None:
        if self._waiting:
            await asyncio.wait([future for future, _ in self._waiting])
        self._collect()

    def _keys(self) -> str:
        keys = self._prototype.keys
        return keys if isinstance(keys, str) else join_keys(keys)

    def _queues(self, count: int) -> NDArray[np.int64] | None:
        queue = self._prototype.queue_id
        return None if queue is None else np.full(count, queue, np.int64)

    def _finish(self, *, rows: bool) -> None:
        totals, problem = self._totals, self._problem
        if rows and (totals.sent or problem is None):
            write_rows([totals.row(self._prototype.topic)], self._form)
        if problem is None:
            return
        counts = f"{totals.acknowledged} acknowledged, {totals.sent - totals.acknowledged} not: "
        raise CommandError(f"{counts if totals.sent else ''}{problem}", exit_code_of(problem))


async def lines_of(file: Path | None) -> AsyncIterator[bytes]:
    """Lines without their newline, as they come: a pipe is read while it is written."""
    from_stdin = file is None or str(file) == "-"
    descriptor = sys.stdin.fileno() if from_stdin else _opened(str(file))
    rest = b""
    try:
        while chunk := await _read(descriptor):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line
        if rest:
            yield rest
    finally:
        if not from_stdin:
            os.close(descriptor)


def _opened(file: str) -> int:
    try:
        if Path(file).is_dir():
            raise CommandError(f"{file} is a folder, not a file of lines", exit_codes.USAGE)
        return os.open(file, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", exit_codes.USAGE) from None


async def _read(descriptor: int) -> bytes:
    """What is there, as soon as something is; a thread that reads could not be interrupted."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        return os.read(descriptor, READ_BYTES)  # a file on a disk can always be read
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, READ_BYTES)


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

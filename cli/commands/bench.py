"""`tandemlog bench`: how fast a cluster takes and gives messages, and how long each takes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.progress import TextColumn

from tandemlog.admin import DEFAULT_QUEUES, AsyncAdmin
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.reading.positions import EARLIEST, LATEST
from tandemlog.errors import TopicExistsError
from tandemlog.memory import keep_freed_memory
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog.turns import take_short_turns

from ..messages.load import HEAD, Consuming, Load, Measured, Producing
from ..output.progress import progress_bar
from ..output.tables import write_table
from ..shared.command import new_app
from ..shared.completion import TopicArgument
from ..shared.failures import CommandError, exit_code_of, text_of
from ..shared.options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    Endpoint,
    NoWait,
    ReadFromOption,
    Timeout,
    check_endpoints,
    connection_options,
)

DEFAULT_COUNT = 100_000
SHOW_S = 0.2

app = new_app()


class What(StrEnum):
    PUT = "put"
    GET = "get"
    BOTH = "both"


class BenchFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


@app.command("bench")
def bench_command(
    what: Annotated[
        What,
        typer.Argument(
            metavar="put|get|both",
            help="put: send; get: read what the topic holds; both: send, and read the same "
            "messages meanwhile.",
        ),
    ],
    topic: TopicArgument,
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            "-n",
            min=1,
            help=f"Number of messages. [default: {DEFAULT_COUNT} to put, all to get, if there is "
            "no --duration]",
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option("--duration", metavar="SECONDS", min=0.1, help="Stop after so many seconds."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=0.1,
            help="Messages to send per second, over all producers. [default: as many as possible]",
        ),
    ] = None,
    size: Annotated[
        int, typer.Option("--size", metavar="BYTES", min=HEAD.size, help="Size of each body.")
    ] = 128,
    producers: Annotated[
        int, typer.Option("--producers", min=1, max=256, help="Number of producers.")
    ] = 1,
    consumers: Annotated[
        int,
        typer.Option(
            "--consumers", min=1, max=256, help="Number of consumers, which share the queues."
        ),
    ] = 1,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic if it does not exist.")
    ] = False,
    queues: Annotated[
        int, typer.Option("--queues", min=1, max=65_536, help="Queues of a topic to create.")
    ] = DEFAULT_QUEUES,
    no_wait: NoWait = False,
    read_from: ReadFromOption = ReadFrom.ANY,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: Annotated[
        BenchFormat,
        typer.Option(
            "--format", "-f", help="table for people; json for programs: one object with all."
        ),
    ] = BenchFormat.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Measure a cluster: messages and megabytes per second, and the percentiles of latencies.

    The latencies of put are from send to acknowledgement, those of get from send to the consumer's
    hand; with --rate both count from when a message was due. get alone has none. Producers and
    consumers share one process: if that is busy, run several at a time. The messages stay in the
    topic until they expire.
    """
    if count is None and duration is None and what is not What.GET:
        count = DEFAULT_COUNT
    load = Load(topic, size, count, duration, rate, producers, consumers, not no_wait)
    keep_freed_memory()
    take_short_turns()

    connection = connection_options(timeout)

    async def run() -> dict[str, Measured]:
        async with AsyncAdmin(check_endpoints(endpoint), connection=connection) as admin:
            if create:
                with contextlib.suppress(TopicExistsError):
                    await admin.create_topic(topic, queues)
            number = (await admin.topic(topic)).read_queues
        return await _measured(what, load, endpoint, read_from, connection, number)

    measured = asyncio.run(run())
    _show(measured, load, form)
    for each in measured.values():
        if each.problem is not None:
            raise CommandError(
                f"{each.messages} acknowledged, {each.failed} not: {text_of(each.problem)}",
                exit_code_of(each.problem),
            )


async def _measured(
    what: What,
    load: Load,
    endpoint: str,
    read_from: ReadFrom,
    connection: ConnectionOptions,
    queues: int,
) -> dict[str, Measured]:
    """Run the load; what the producers and the consumers measured."""
    producing = None if what is What.GET else Producing(load)
    consuming = None if what is What.PUT else Consuming(load, producing)
    measured = {}
    if producing is not None:
        measured["put"] = producing.measured
    if consuming is not None:
        measured["get"] = consuming.measured
    async with contextlib.AsyncExitStack() as stack:
        streams = []
        for number in range(min(load.consumers, queues) if consuming else 0):
            consumer = await stack.enter_async_context(
                AsyncConsumer(endpoint, read_from=read_from, connection=connection)
            )
            stream = await consumer.follow(
                load.topic,
                queues=range(number, queues, load.consumers),
                start=LATEST if producing else EARLIEST,
                until_end=producing is None,
            )
            streams.append(await stack.enter_async_context(stream))
        producers = [
            await stack.enter_async_context(
                AsyncProducer(endpoint, ProducerOptions(connection=connection))
            )
            for _ in range(load.producers if producing else 0)
        ]
        async with _progress(what, load, list(measured.values())[-1]):
            await asyncio.gather(
                *([producing.run(producers)] if producing else []),
                *([consuming.run(streams)] if consuming else []),
            )
    return measured


@contextlib.asynccontextmanager
async def _progress(what: What, load: Load, measured: Measured) -> AsyncIterator[None]:
    """A bar on stderr if that is a terminal."""
    bar = progress_bar(TextColumn("{task.fields[messages]:,} messages"))

    async def show() -> None:
        while True:
            bar.update(task, completed=measured.messages, messages=measured.messages)
            await asyncio.sleep(SHOW_S)

    with bar:
        task = bar.add_task(f"bench {what} {load.topic}", total=load.count, messages=0)
        shower = asyncio.create_task(show())
        try:
            yield
        finally:
            shower.cancel()


def _show(measured: dict[str, Measured], load: Load, form: BenchFormat) -> None:
    rows: dict[str, dict[str, Any]] = {name: each.row() for name, each in measured.items()}
    if form is BenchFormat.TABLE:
        write_table([{"": name, **row} for name, row in rows.items()])
        return
    names = ("topic", "size", "rate", "producers", "consumers")
    typer.echo(json.dumps({name: getattr(load, name) for name in names} | rows))

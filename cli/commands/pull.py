"""`tandemlog pull`: read a topic from a chosen position, once or following it."""

import asyncio
import time
from dataclasses import replace
from typing import Annotated

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.reading.positions import EARLIEST, LATEST, Queue, Start
from tandemlog.consume.stream import AsyncStream
from tandemlog.memory import keep_freed_memory
from tandemlog.turns import take_short_turns

from ..messages.reading import (
    ONLY_WHAT_IS_THERE,
    Ending,
    EveryQueue,
    Offsets,
    Wanted,
    last_messages,
    queue_ranges,
    stops_at,
)
from ..output.message_formats import Write, writer_of
from ..shared.command import new_app
from ..shared.completion import TopicArgument, complete_group
from ..shared.options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    Endpoint,
    ReadFromOption,
    Timeout,
    check_endpoints,
    connection_options,
    now_ms,
)
from ..shared.times import FORMS, LEAST_MS, MAX_LENGTH, parse_time_ms

COMMIT_S = 1.0
FOLLOWING = FollowOptions(auto_commit_ms=None)

app = new_app()


@app.command("pull")
def pull_command(
    topic: TopicArgument,
    queue: Annotated[
        int | None, typer.Option("--queue", "-q", min=0, help="Read only this queue.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="N|earliest|latest|TIME",
            help=f"Where to begin: a queue offset, or a store time ({FORMS}; a number from "
            f"{LEAST_MS} on is a time). [default: the group's committed offset, else earliest]",
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            metavar="N",
            min=1,
            help="Read the last N messages of the topic, or of --queue; with --follow, then wait "
            "for new ones.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Stop before the first message stored after TIME, in each queue.",
        ),
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="Stop after this many messages.")
    ] = None,
    tags: Annotated[
        str | None,
        typer.Option(
            "--tags", metavar="EXPR", help='Read only messages with these tags, such as "a || b".'
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="FILTER",
            help="Read only messages whose properties fit RocketMQ's SQL92, such as \"amount > 5 "
            "AND region IN ('eu', 'us')\".",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep reading new messages until Ctrl-C.")
    ] = False,
    exit_on_idle: Annotated[
        int | None,
        typer.Option(
            "--exit-on-idle",
            metavar="MS",
            min=1,
            help="Wait for new messages, and end if none comes for MS milliseconds.",
        ),
    ] = None,
    read_from: ReadFromOption = ReadFrom.ANY,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            help="Read as this consumer group and commit its offsets.",
            autocompletion=complete_group,
        ),
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="table|jsonl|raw|text|json|TEMPLATE",
            help="Output format. table: columns for people; jsonl: all fields, the body in base64, "
            "as put --jsonl takes it; raw: the bodies and nothing else; text: bodies, each with a "
            r"newline; json: as jsonl, with the JSON in the body parsed; or a template of kcat's "
            r"fields, such as '%t %p %o %k %s\n'.",
        ),
    ] = "table",
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Read the messages that a topic holds now; with --follow, wait for new ones too.

    Messages of one queue come in order; the queues are read in turn. Bodies are decompressed.

    A template writes for each message: %t topic, %p queue id, %o queue offset, %k keys, %g tag,
    %s body, %h properties, %i message id, %T store time in milliseconds, %D as a date, %S bytes of
    the body, %K bytes of the keys, %R bytes of the body as a big-endian int32, %% a percent sign;
    and the escapes for newline, tab, carriage return, 0, backslash and xHH. It adds nothing by
    itself, not even a newline.
    """
    write = writer_of(form)
    if last is not None and (offset is not None or group is not None or maximum is not None):
        raise typer.BadParameter("--last cannot be given with --offset, --group or --max")
    wanted = Wanted(
        topic,
        queue,
        _parse_start(offset),
        tags,
        last,
        None if until is None else parse_time_ms(until, now_ms()),
        follow or exit_on_idle is not None,
        exit_on_idle,
        where,
    )
    keep_freed_memory()
    take_short_turns()
    connection = connection_options(timeout)
    consumer = AsyncConsumer(
        check_endpoints(endpoint),
        group=group,
        read_from=read_from,
        options=FOLLOWING,
        connection=connection,
    )
    admin = AsyncAdmin(endpoint, read_from=read_from, connection=connection)
    asyncio.run(_Pull(consumer, admin, write, maximum).run(wanted))


def _parse_start(offset: str | None) -> Start | EveryQueue | None:
    if offset is None or offset in (EARLIEST, LATEST):
        return offset
    if offset.isdecimal() and len(offset) <= MAX_LENGTH and int(offset) < LEAST_MS:
        return EveryQueue(int(offset))
    if offset[:1] == "-" and offset[1:].isdecimal() and len(offset) <= MAX_LENGTH:
        raise typer.BadParameter(
            f"--offset {offset} is no offset; the last {offset[1:]} messages are --last "
            f"{offset[1:]}, and a time that long ago has a unit, such as {offset}s"
        )
    return parse_time_ms(offset, now_ms(), besides="earliest, latest, a queue offset, ")


class _Pull:
    """One run of the command."""

    def __init__(
        self, consumer: AsyncConsumer, admin: AsyncAdmin, write: Write, maximum: int | None
    ) -> None:
        self._consumer = consumer
        self._admin = admin
        self._write = write
        self._maximum = maximum
        self._cut: dict[Queue, int] = {}

    async def run(self, wanted: Wanted) -> None:
        if wanted.until_ms is not None and wanted.until_ms <= now_ms():
            wanted = replace(wanted, follow=False)  # nothing that is wanted can come any more
        async with self._consumer, self._admin:
            stops = None
            if wanted.until_ms is not None and not wanted.follow:
                stops = await stops_at(self._admin, wanted)
            start = wanted.start
            if wanted.last is not None:
                start = await self._last(wanted, stops)
                if not wanted.follow:
                    return
            ending = Ending(wanted, stops, now_ms)
            if ending.reached:
                return
            stream = await self._consumer.follow(
                wanted.topic,
                queues=await self._by_hand(wanted),
                start=start,
                tags=wanted.tags,
                where=wanted.where,
                until_end=not wanted.follow,
                options=FOLLOWING if wanted.follow else ONLY_WHAT_IS_THERE,
            )
            try:
                await self._read(stream, ending)
            finally:
                await self._commit(stream)

    async def _by_hand(self, wanted: Wanted) -> list[int] | None:
        """The queues to read; None: those that the group gives, or all. Who says where to begin
        has all queues: a group begins where it stopped."""
        if wanted.queue is not None:
            return [wanted.queue]
        if self._consumer.group is None or wanted.start is None:
            return None
        return [queue_id for _, queue_id in await queue_ranges(self._admin, wanted)]

    async def _commit(self, stream: AsyncStream) -> None:
        """Save, for the group, what was written; of a batch that was cut only the first part."""
        if self._consumer.group is not None:
            await self._consumer.commit(stream.positions | self._cut)

    async def _last(self, wanted: Wanted, stops: Offsets | None) -> Offsets:
        """Write the last messages; returns the offsets behind them."""
        ranges = await queue_ranges(self._admin, wanted)
        ends = {queue: each.max_offset for queue, each in ranges.items()}
        least = {queue: each.min_offset for queue, each in ranges.items()}
        before = ends if stops is None else {queue: stops[queue] for queue in ends}
        self._write(await last_messages(self._consumer, wanted, before, least))
        return ends

    async def _read(self, stream: AsyncStream, ending: Ending) -> None:
        """Write what comes, and commit what was written, until the end or the maximum."""
        remaining = self._maximum
        committed_at = time.monotonic()
        while not ending.reached:
            try:
                whole = await stream.next_batch(timeout_ms=ending.wait_ms())
            except TimeoutError:
                return
            if whole is None:
                return
            batch = ending.cut(whole)
            if remaining is not None and len(batch) > remaining:
                batch = batch.before(batch[remaining].queue_offset)
            if len(batch):
                self._write(batch)
            if len(batch) < len(whole):
                queue = (batch.topic, batch.queue_id)
                self._cut.setdefault(queue, whole[len(batch)].queue_offset)
            if time.monotonic() - committed_at > COMMIT_S:
                await self._commit(stream)
                committed_at = time.monotonic()
            if remaining is not None:
                remaining -= len(batch)
                if not remaining:
                    return

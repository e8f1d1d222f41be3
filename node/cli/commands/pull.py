"""`tandemlog pull`: read a topic, from where one wants, once or on and on."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.consumer import AsyncConsumer, AsyncStream
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.positions import EARLIEST, LATEST, Queue, Start
from tandemlog.memory import keep_freed_memory

from ..command import new_app
from ..exit_codes import epilog
from ..failures import one_line_errors
from ..message_rows import received_row, table_row
from ..options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    Endpoint,
    FormatOption,
    ReadFromOption,
    Timeout,
    check_endpoints,
    connection_options,
    now_ms,
)
from ..output import Format, StreamedTable, write_lines
from ..times import LEAST_MS, MAX_LENGTH, parse_time_ms

if TYPE_CHECKING:
    from tandemlog.consume.received import ReceivedMessage

COMMIT_S = 1.0
TABLE = StreamedTable(
    {
        "queue_id": 8,
        "queue_offset": 12,
        "store_timestamp": 15,
        "tags": 12,
        "keys": 20,
        "text": 0,
    }
)

app = new_app()


@app.command("pull", epilog=epilog())
def pull_command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    queue: Annotated[
        int | None, typer.Option("--queue", "-q", min=0, help="Read only this queue.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="N|earliest|latest|TIME",
            help="Where to begin: a queue offset, or a store time (ISO 8601 or milliseconds since "
            f"1970; a number from {LEAST_MS} on is a time). [default: the group's committed "
            "offset, else earliest]",
            show_default=False,
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
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep reading new messages until Ctrl-C.")
    ] = False,
    read_from: ReadFromOption = ReadFrom.ANY,
    group: Annotated[
        str | None,
        typer.Option("--group", help="Read as this consumer group and commit its offsets."),
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Read the messages that a topic holds now; with --follow, wait for new ones too.

    With --format jsonl, each message has the fields that `dump` shows; its body is decompressed
    and base64-encoded. Messages of one queue come in order; the queues are read in turn.
    """
    start = _parse_start(offset)
    keep_freed_memory()
    with one_line_errors():
        consumer = AsyncConsumer(
            check_endpoints(endpoint),
            group=group,
            read_from=read_from,
            options=FollowOptions(auto_commit_ms=None),
            connection=connection_options(timeout),
        )
        pull = _Pull(consumer, form, maximum)
        asyncio.run(pull.run(topic, queue, start, tags, follow=follow))


class EveryQueue(Mapping[Queue, int]):
    """A queue offset that is the same for whatever queue is asked for."""

    def __init__(self, queue_offset: int) -> None:
        self.queue_offset = queue_offset

    def __getitem__(self, queue: Queue) -> int:
        return self.queue_offset

    def __contains__(self, queue: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Queue]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _parse_start(offset: str | None) -> Start | EveryQueue | None:
    if offset is None or offset in (EARLIEST, LATEST):
        return offset
    if offset.isdecimal() and len(offset) <= MAX_LENGTH and int(offset) < LEAST_MS:
        return EveryQueue(int(offset))
    return parse_time_ms(offset, now_ms())


class _Pull:
    """One run of the command."""

    def __init__(self, consumer: AsyncConsumer, form: Format, maximum: int | None) -> None:
        self._consumer = consumer
        self._maximum = maximum
        self._row_of: Callable[[ReceivedMessage], dict[str, Any]] = (
            received_row if form is Format.JSONL else table_row
        )
        self._write: Callable[[list[dict[str, Any]]], object] = (
            write_lines if form is Format.JSONL else TABLE.write
        )

    async def run(
        self,
        topic: str,
        queue: int | None,
        start: Start | EveryQueue | None,
        tags: str | None,
        *,
        follow: bool,
    ) -> None:
        queues = None if queue is None else [queue]
        async with self._consumer:
            stream = await self._consumer.follow(
                topic, queues=queues, start=start, tags=tags, until_end=not follow
            )
            try:
                await self._read(stream)
            finally:
                if self._consumer.group is not None:
                    await stream.commit()

    async def _read(self, stream: AsyncStream) -> None:
        """Write what comes, and commit what was written, until the end or the maximum."""
        follower, left = stream.follower, self._maximum
        committed_at = time.monotonic()
        while (batch := await follower.next_batch()) is not None:
            if left is not None and len(batch) > left:
                batch = batch.before(batch[left].queue_offset)
            self._write([self._row_of(message) for message in batch])
            follower.handed_out((batch.topic, batch.queue_id), batch.next_offset)
            if self._consumer.group is not None and time.monotonic() - committed_at > COMMIT_S:
                await stream.commit()
                committed_at = time.monotonic()
            if left is not None:
                left -= len(batch)
                if not left:
                    return

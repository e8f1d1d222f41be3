"""`tandemlog query`: messages by key, unique id, tag, or offset id."""

from typing import Annotated

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.received.received_message import ReceivedMessage

from ..output.message_formats import MESSAGE_COLUMNS, received_row, table_row
from ..output.tables import Format, write_rows
from ..shared.command import new_app
from ..shared.completion import complete_topic
from ..shared.exit_codes import NOT_FOUND
from ..shared.failures import CommandError
from ..shared.online import ClusterOptions
from ..shared.options import ReadFromOption, now_ms
from ..shared.times import parse_time_ms

MAX_MESSAGES = 2**31 - 1  # what the field of a request holds

app = new_app()


@app.command("query")
def query_command(
    topic: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete_topic,
            metavar="[TOPIC]",
            help="Topic to search; required with --key and --tag.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", help="Find messages with this key or unique id (UNIQ_KEY)."),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option("--tag", help="Find messages with this tag, if the store indexes tags."),
    ] = None,
    message_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Find the message with this offset id (msg_id); with TOPIC, also with this unique "
            "id.",
        ),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option("--begin", metavar="TIME", help="Only messages stored at TIME or later."),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--end", metavar="TIME", help="Only messages stored at TIME or earlier."),
    ] = None,
    maximum: Annotated[
        int | None,
        typer.Option(
            "--max",
            min=1,
            max=MAX_MESSAGES,
            help="Show at most this many messages, the newest. [default: all]",
        ),
    ] = None,
    read_from: ReadFromOption = ReadFrom.ANY,
    *,
    cluster: ClusterOptions,
) -> None:
    """Find messages of a topic by key or tag, or one message by its id.

    Exit code 4 means that there is no such message.
    """
    if sum(each is not None for each in (key, tag, message_id)) != 1:
        raise typer.BadParameter("give exactly one of --key, --tag and --id")
    if topic is None and message_id is None:
        raise typer.BadParameter("--key and --tag need a TOPIC")
    begin_ms = parse_time_ms(begin, now_ms()) if begin is not None else 0
    end_ms = parse_time_ms(end, now_ms()) if end is not None else 0

    async def find(admin: AsyncAdmin) -> list[ReceivedMessage]:
        if message_id is not None:
            message = await admin.query_by_id(message_id, topic)
            return [] if message is None else [message]
        return await admin.query_by_key(
            topic or "",
            key if key is not None else tag or "",
            max_messages=maximum or 0,
            begin=begin_ms,
            end=end_ms,
            tags=tag is not None,
            everything=True,
        )

    messages = cluster.ask(find, read_from)
    if not messages:
        what = message_id or key or tag
        raise CommandError(f"no message found for {what!r}", NOT_FOUND)
    row_of = received_row if cluster.form is Format.JSONL else table_row
    write_rows(map(row_of, messages), cluster.form, MESSAGE_COLUMNS)

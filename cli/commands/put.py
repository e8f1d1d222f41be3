"""`tandemlog put`: lines of a file or of stdin, whole files, rows of `pull`, generated messages."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import MAX_DELIVERY_TIMEOUT_MS, ProducerOptions

from ..messages.inputs import (
    MAX_SIZE,
    Queues,
    Rows,
    ToMessage,
    check_files,
    keyed,
    lines_of,
    plain,
    whole,
)
from ..messages.sending import Sending
from ..output.tables import Format
from ..shared.command import new_app
from ..shared.completion import TopicArgument
from ..shared.options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    Endpoint,
    FormatOption,
    NoWait,
    check_endpoints,
    connection_options,
    named_values,
    timeout_option,
)

MAX_QUEUE = 65_535
DELIVERY_TIMEOUT_S = 30.0
ALTERNATIVES = (
    ("FILE", "--file", "--generate"),
    ("--file", "--generate", "--whole", "--jsonl", "--key-separator"),
    ("--queue", "--queues"),
)
"""Of each row at most one may be given."""

PutTimeout = Annotated[
    float | None,
    timeout_option(
        "How many seconds to keep trying before giving up. "
        f"[default: {DEFAULT_TIMEOUT_S:g} to find the cluster, {DELIVERY_TIMEOUT_S:g} to deliver]"
    ),
]

app = new_app()


@app.command("put")
def put_command(
    topic: TopicArgument,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="File with one message per line. Without FILE, or with -, lines are read from "
            "stdin.",
        ),
    ] = None,
    whole_input: Annotated[
        bool, typer.Option("--whole", help="Send FILE or stdin as one message, not by lines.")
    ] = False,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", metavar="PATH", help="Send this whole file as one message; may be repeated."
        ),
    ] = None,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl",
            help="Lines are JSON objects as pull --format jsonl writes them. They may have body "
            "(base64) or text, keys, tags, properties, sharding_key, queue_id, flag and "
            "born_timestamp; what else pull writes is ignored.",
        ),
    ] = False,
    queues: Annotated[
        Queues | None,
        typer.Option(
            "--queues",
            help="Queues of --jsonl. keep: the same queue id; hash: by the sharding key, else by "
            "the queue id divided by the number of queues, so that each queue keeps its order; "
            "any: by the sharding key, else any queue. [default: keep]",
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            metavar="TEXT",
            help=r"What stands between the key and the body of each line, such as : or \t. Lines "
            "of equal keys go to one queue, in order.",
        ),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", help="Key of every message; may be repeated.")
    ] = None,
    sharding_key: Annotated[
        str,
        typer.Option(
            "--sharding-key", help="Sharding key of every message: equal ones share a queue."
        ),
    ] = "",
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
    no_wait: NoWait = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: PutTimeout = None,
) -> None:
    """Send messages: the lines of FILE or stdin, whole files, or generated ones.

    The command ends when all messages are acknowledged and prints one row of totals: topic,
    messages, failed, duplicates, body_bytes, seconds, messages_per_second, mb_per_second. With
    --format jsonl it prints one object for each message instead: topic, queue_id, queue_offset,
    physical_offset, msg_id, store_timestamp, duplicate; or place and error.

    A line that cannot be a message, for example because it is too large, is reported with its
    number. The others are sent, and the exit code is 2.

    A topic is copied by: tandemlog pull A --format jsonl | tandemlog put B --jsonl
    """
    used = {
        "FILE": file is not None,
        "--file": bool(files),
        "--generate": generate is not None,
        "--whole": whole_input,
        "--jsonl": jsonl,
        "--key-separator": key_separator is not None,
        "--queue": queue is not None,
        "--queues": queues is not None,
    }
    for alternatives in ALTERNATIVES:
        _check_one_of([name for name in alternatives if used[name]])
    if queues is not None and not jsonl:
        raise typer.BadParameter("--queues belongs to --jsonl")
    prototype = Message(
        topic,
        b"",
        keys=key or "",
        tags=tag,
        properties=named_values("--property", properties) or None,
        queue_id=queue,
        sharding_key=sharding_key or None,
    )
    options = ProducerOptions(
        connection=connection_options(timeout or DEFAULT_TIMEOUT_S),
        delivery_timeout_ms=min((timeout or DELIVERY_TIMEOUT_S) * 1000, MAX_DELIVERY_TIMEOUT_MS),
    )

    async def to_message() -> ToMessage:
        if jsonl:
            async with AsyncAdmin(endpoint, connection=options.connection) as admin:
                count = (await admin.topic(topic)).write_queues
            return Rows(prototype, queues or Queues.KEEP, count)
        if separator is not None:
            return keyed(prototype, separator)
        return plain(prototype)

    separator = None if key_separator is None else _separator(key_separator)
    producer = AsyncProducer(check_endpoints(endpoint), options)
    check_files(files or [])
    put = Sending(producer, prototype, wait=not no_wait, form=form)
    if generate is not None:
        asyncio.run(put.generate(generate, size))
    elif files or whole_input:
        asyncio.run(put.inputs(_whole(files or [file]), to_message))
    else:
        asyncio.run(put.inputs(_numbered(lines_of(file)), to_message))


def _check_one_of(names: Sequence[str]) -> None:
    if len(names) > 1:
        raise typer.BadParameter(f"give either {names[0]} or {names[1]}, not both")


async def _whole(files: Sequence[Path | None]) -> AsyncIterator[tuple[str, bytes]]:
    for file in files:
        yield str(file or "stdin"), await whole(file)


async def _numbered(lines: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    number = 0
    async for line in lines:
        number += 1
        yield f"line {number}", line


def _separator(text: str) -> bytes:
    separator = text.replace(r"\t", "\t").replace(r"\0", "\0")
    if not separator:
        raise typer.BadParameter("--key-separator must not be empty")
    return separator.encode()

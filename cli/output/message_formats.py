"""`pull --format`: what is written of each message.

    table   columns for people              jsonl   every field, the body in base64; put --jsonl
    raw     bodies end to end               text    bodies, each with a newline
    json    as jsonl, the body parsed       %t %o %s\\n   whatever is wanted (templates.py)

What cannot be shown as asked is said once, on stderr, with the place of the first such message.
"""

import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import typer

from .message_rows import received_row, table_row
from .tables import StreamedTable, write_lines
from .templates import looks_like_a_template, template

if TYPE_CHECKING:
    from tandemlog.consume.received.received_message import ReceivedMessage

NAMES = ("table", "jsonl", "raw", "text", "json")
TABLE_WIDTHS = {
    "queue_id": 8,
    "queue_offset": 12,
    "store_timestamp": 23,
    "tags": 12,
    "keys": 20,
    "text": 0,
}

Write = Callable[[Iterable["ReceivedMessage"]], object]


def writer_of(form: str) -> Write:
    """What writes messages to stdout. Raises typer.BadParameter for a format that is none."""
    if form == "table":
        table = StreamedTable(TABLE_WIDTHS)
        return lambda messages: table.write(map(table_row, messages))
    if form == "jsonl":
        return lambda messages: write_lines(map(received_row, messages))
    if form == "json":
        rows = _JsonRows()
        return lambda messages: write_lines(map(rows, messages))
    if form == "raw":
        return _of_bytes(lambda message: message.body)
    if form == "text":
        return _of_bytes(_Text())
    if looks_like_a_template(form):
        return _of_bytes(template(form))
    raise typer.BadParameter(
        f"'--format' must be one of {', '.join(NAMES)}, or a template such as "
        rf"'%t %p %o %k %s\n', not {form!r}"
    )


def _of_bytes(bytes_of: Callable[["ReceivedMessage"], bytes]) -> Write:
    def write(messages: Iterable["ReceivedMessage"]) -> None:
        sys.stdout.buffer.write(b"".join(map(bytes_of, messages)))
        sys.stdout.buffer.flush()

    return write


class _Once:
    """A note on stderr that is not repeated."""

    def __init__(self) -> None:
        self._said = False

    def say(self, message: "ReceivedMessage", text: str) -> None:
        if not self._said:
            place = f"{message.topic}, queue {message.queue_id}, offset {message.queue_offset}"
            sys.stderr.write(f"tandemlog: {place}: {text} (said once)\n")
            self._said = True


class _Text:
    """A body and a newline."""

    def __init__(self) -> None:
        self._note = _Once()

    def __call__(self, message: "ReceivedMessage") -> bytes:
        body = message.body
        try:
            body.decode()
        except UnicodeDecodeError:
            self._note.say(
                message,
                "the body is not UTF-8; each invalid byte is shown as U+FFFD, "
                "--format raw writes bodies as they are",
            )
            body = body.decode(errors="replace").encode()
        return body + b"\n"


class _JsonRows:
    """Rows as of jsonl, with the value that the body stands for. A body that is not JSON is null,
    and its bytes are in `body_base64`."""

    def __init__(self) -> None:
        self._note = _Once()

    def __call__(self, message: "ReceivedMessage") -> dict[str, Any]:
        row = received_row(message)
        try:
            row["body"] = json.loads(message.body, parse_constant=_no_json)
        except (ValueError, RecursionError):
            row["body"], row["body_base64"] = None, row["body"]
            self._note.say(message, "the body is not JSON; it is in body_base64, and body is null")
        return row


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is not JSON")

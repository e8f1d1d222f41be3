r"""Messages as they are written: rows as of `dump`, and what `pull --format` says.

    table   columns for people              jsonl   every field, the body in base64; put --jsonl
    raw     bodies end to end               text    bodies, each with a newline
    json    as jsonl, the body parsed       %t %o %s\n   a template: kcat's format strings

    %t topic   %p queue id (also %q)   %o queue offset   %k keys   %g tag   %s body (also %b)
    %h the user's properties as name=value,name=value    %i message id
    %T store time in ms   %D the same as a date   %S bytes of the body   %K bytes of the keys
    %R bytes of the body as a big-endian int32    %% a percent sign    \n \t \r \0 \\ \xHH

A template adds nothing, not even a newline, and bodies are written as they are. What cannot be
shown as asked is said once, on stderr, with the place of the first such message.
"""

import base64
import json
import re
import sys
from collections.abc import Callable, Iterable
from struct import pack
from typing import Any

import typer

from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.format.constants import KEYS
from tandemlog.produce.framing import is_reserved
from tandemlog_server.storage.tools.dump import message_row

from .tables import StreamedTable, date_text, write_lines

NAMES = ("table", "jsonl", "raw", "text", "json")
TABLE_WIDTHS = {
    "queue_id": 8, "queue_offset": 12, "store_timestamp": 23, "tags": 12, "keys": 20, "text": 0,
}  # fmt: skip
MESSAGE_COLUMNS = (
    "topic", "queue_id", "queue_offset", "tags", "keys", "store_timestamp", "msg_id", "size",
    "text",
)  # fmt: skip

Write = Callable[[Iterable[ReceivedMessage]], object]
Piece = Callable[[ReceivedMessage], bytes]

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PIECE = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9A-Fa-f]{2})|\\(?P<escape>.?)", re.DOTALL)


def received_row(message: ReceivedMessage) -> dict[str, Any]:
    """A message as `dump` has it, but the body decompressed."""
    row: dict[str, Any] = message_row(message.record)
    row["body"] = base64.b64encode(message.body).decode()
    return row


def table_row(message: ReceivedMessage) -> dict[str, Any]:
    """The same for people: also the body as text, with a mark for each byte that is not UTF-8."""
    row = received_row(message)
    row["text"] = message.body.decode(errors="replace")
    return row


def writer_of(form: str) -> Write:
    """What writes messages to stdout. Raises typer.BadParameter for an unknown format."""
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


def _of_bytes(bytes_of: Callable[[ReceivedMessage], bytes]) -> Write:
    def write(messages: Iterable[ReceivedMessage]) -> None:
        sys.stdout.buffer.write(b"".join(map(bytes_of, messages)))
        sys.stdout.buffer.flush()

    return write


class _Once:
    """A note on stderr that is not repeated."""

    def __init__(self) -> None:
        self._said = False

    def say(self, message: ReceivedMessage, text: str) -> None:
        if not self._said:
            place = f"{message.topic}, queue {message.queue_id}, offset {message.queue_offset}"
            sys.stderr.write(f"tandemlog: {place}: {text} (said once)\n")
            self._said = True


class _Text:
    """A body and a newline."""

    def __init__(self) -> None:
        self._note = _Once()

    def __call__(self, message: ReceivedMessage) -> bytes:
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

    def __call__(self, message: ReceivedMessage) -> dict[str, Any]:
        row = received_row(message)
        try:
            row["body"] = json.loads(message.body, parse_constant=_no_json)
        except (ValueError, RecursionError):
            row["body"], row["body_base64"] = None, row["body"]
            self._note.say(message, "the body is not JSON; it is in body_base64, and body is null")
        return row


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# ---- templates


def user_properties(message: ReceivedMessage) -> dict[str, str]:
    """Its properties without those that the store and the client keep for themselves."""
    return {name: value for name, value in message.properties.items() if not is_reserved(name)}


def _keys(message: ReceivedMessage) -> bytes:
    return message.properties.get(KEYS, "").encode()


FIELDS: dict[str, Piece] = {
    "t": lambda message: message.topic.encode(),
    "p": lambda message: b"%d" % message.queue_id,
    "q": lambda message: b"%d" % message.queue_id,
    "o": lambda message: b"%d" % message.queue_offset,
    "k": _keys,
    "K": lambda message: b"%d" % len(_keys(message)),
    "g": lambda message: (message.tags or "").encode(),
    "s": lambda message: message.body,
    "b": lambda message: message.body,
    "S": lambda message: b"%d" % len(message.body),
    "R": lambda message: pack(">i", len(message.body)),
    "h": lambda message: ",".join(
        f"{name}={value}" for name, value in user_properties(message).items()
    ).encode(),
    "i": lambda message: message.msg_id.encode(),
    "T": lambda message: b"%d" % message.store_timestamp,
    "D": lambda message: date_text(message.store_timestamp).encode(),
    "%": lambda _: b"%",
}


def looks_like_a_template(text: str) -> bool:
    """Whether `text` cannot be the name of a format."""
    return "%" in text or "\\" in text


def template(text: str) -> Callable[[ReceivedMessage], bytes]:
    """What makes the bytes of a message. Raises typer.BadParameter that names what is unknown."""
    pieces: list[bytes | Piece] = []
    position = 0
    for match in _PIECE.finditer(text):
        pieces.append(text[position : match.start()].encode())
        position = match.end()
        if match["hex"] is not None:
            pieces.append(bytes.fromhex(match["hex"]))
            continue
        names: dict[str, Piece] | dict[str, bytes]
        name, names = (
            (match["escape"], _ESCAPES) if match["field"] is None else (match["field"], FIELDS)
        )
        if name not in names:
            listed = " ".join(match[0][0] + each for each in names)
            raise typer.BadParameter(
                f"--format: {match[0]!r} is not known in a template; there are {listed}"
            )
        pieces.append(names[name])
    pieces.append(text[position:].encode())

    def written(message: ReceivedMessage) -> bytes:
        return b"".join(each if isinstance(each, bytes) else each(message) for each in pieces)

    return written

r"""A line for each message as the user wants it: kcat's format strings.

    %t topic   %p queue id (also %q)   %o queue offset   %k keys   %g tag   %s body (also %b)
    %h the user's properties as name=value,name=value    %i message id
    %T store time in ms   %D the same as a date   %S bytes of the body   %K bytes of the keys
    %R bytes of the body as a big-endian int32    %% a percent sign    \n \t \r \0 \\ \xHH

Nothing is added, not even a newline, and bodies are written as they are.
"""

import re
from collections.abc import Callable, Sequence
from struct import pack
from typing import TYPE_CHECKING

import typer

from tandemlog.format.constants import KEYS
from tandemlog.produce.framing import is_reserved

from .tables import date_text

if TYPE_CHECKING:
    from tandemlog.consume.received.received_message import ReceivedMessage

Piece = Callable[["ReceivedMessage"], bytes]

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PIECE = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9A-Fa-f]{2})|\\(?P<escape>.?)", re.DOTALL)


def user_properties(message: "ReceivedMessage") -> dict[str, str]:
    """Its properties without those that the store and the client keep for themselves."""
    return {name: value for name, value in message.properties.items() if not is_reserved(name)}


def _keys(message: "ReceivedMessage") -> bytes:
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
    """Whether `text` is no name of a format."""
    return "%" in text or "\\" in text


def template(text: str) -> Callable[["ReceivedMessage"], bytes]:
    """What makes the bytes of a message. Raises typer.BadParameter that names what is unknown."""
    pieces: list[bytes | Piece] = []
    position = 0
    for found in _PIECE.finditer(text):
        pieces.append(text[position : found.start()].encode())
        position = found.end()
        if found["hex"] is not None:
            pieces.append(bytes.fromhex(found["hex"]))
            continue
        known: dict[str, Piece] | dict[str, bytes]
        name, known = (
            (found["escape"], _ESCAPES) if found["field"] is None else (found["field"], FIELDS)
        )
        if name not in known:
            listed = " ".join(found[0][0] + each for each in known)
            raise typer.BadParameter(
                f"--format: {found[0]!r} is not known in a template; there are {listed}"
            )
        pieces.append(known[name])
    pieces.append(text[position:].encode())
    return _joined([each for each in pieces if each != b""])


def _joined(pieces: Sequence[bytes | Piece]) -> Callable[["ReceivedMessage"], bytes]:
    def written(message: "ReceivedMessage") -> bytes:
        return b"".join(each if isinstance(each, bytes) else each(message) for each in pieces)

    return written

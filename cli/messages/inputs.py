"""What `put` reads, and what one line of it says about its message.

Lines come as they are written, or whole files are one message each. A line is one of:

    hello                                    the body
    k7<separator>hello                       a key, which also picks the queue, and the body
    {"keys":"k7","tags":"A","text":"hello"}  any field: what pull --format jsonl writes

A row of `pull` has all that the store knew of a message. Its body, keys, tag, properties, flag and
birth are sent again; the new place makes the rest itself (offsets, store time, UNIQ_KEY).
"""

import asyncio
import base64
import binascii
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from tandemlog.errors import InvalidMessageError, UnknownQueueError
from tandemlog.format.constants import CRC_MASK, SHARDING_KEY
from tandemlog.format.errors import FormatError
from tandemlog.format.fast_crc import crc32
from tandemlog.format.record.properties import split_keys
from tandemlog.format.record.sys_flag import COMPRESSED
from tandemlog.message import Message
from tandemlog.produce.framing import is_reserved
from tandemlog.unpacking import unpacked

from ..shared.exit_codes import USAGE
from ..shared.failures import CommandError

READ_BYTES = 1 << 16
MAX_SIZE = 1 << 30
"""Bytes of a body that is worth reading: no node takes more."""
MAX_SHOWN = 60

ToMessage = Callable[[bytes], Message]

# What a row may have. Of these, put uses:
_USED = {
    "body", "text", "keys", "tags", "properties", "sharding_key", "queue_id", "flag",
    "born_timestamp", "sys_flag", "body_crc",
}  # fmt: skip
_MADE_BY_THE_STORE = {
    "topic", "queue_offset", "physical_offset", "size", "version", "msg_id", "uniq_key",
    "born_host", "store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset",
}  # fmt: skip
_INT32, _INT64 = 2**31 - 1, 2**63 - 1
_LIMITS = {
    "queue_id": 65_535,
    "flag": _INT32,
    "born_timestamp": _INT64,
    "sys_flag": _INT32,
    "body_crc": _INT64,
}


class Queues(StrEnum):
    """Which queue a row's message goes to, if it has no sharding key that decides."""

    KEEP = "keep"
    HASH = "hash"
    ANY = "any"


async def lines_of(file: Path | None) -> AsyncIterator[bytes]:
    """Lines without their newline, LF or CRLF, as they come: a pipe is read while it is written."""
    rest: list[bytes] = []
    async for chunk in _chunks(file):
        *lines, last = chunk.split(b"\n")
        for line in lines:
            rest.append(line)
            yield b"".join(rest).removesuffix(b"\r")
            rest = []
        if last:
            rest.append(last)
    if rest:
        yield b"".join(rest).removesuffix(b"\r")


async def whole(file: Path | None) -> bytes:
    """All bytes of a file or of stdin. Raises CommandError if they are too many for a message."""
    pieces, size = [], 0
    async for chunk in _chunks(file):
        pieces.append(chunk)
        size += len(chunk)
        if size > MAX_SIZE:
            text = f"{file or 'stdin'}: more than {MAX_SIZE} bytes are no message"
            raise CommandError(text, USAGE)
    return b"".join(pieces)


def check_files(files: Sequence[Path]) -> None:
    """Raises CommandError for a file that cannot be read, before anything is sent."""
    for file in files:
        os.close(_opened(str(file)))


async def _chunks(file: Path | None) -> AsyncIterator[bytes]:
    from_stdin = file is None or str(file) == "-"
    descriptor = sys.stdin.fileno() if from_stdin else _opened(str(file))
    try:
        while chunk := await _read(descriptor):
            yield chunk
    finally:
        if not from_stdin:
            os.close(descriptor)


def _opened(file: str) -> int:
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", USAGE) from None
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CommandError(f"{file} is a folder, not a file", USAGE)
    return descriptor


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


# ---- what a line says


def plain(prototype: Message) -> ToMessage:
    """The line is the body; the rest is `prototype`'s."""

    def message(line: bytes) -> Message:
        return Message(
            prototype.topic,
            line,
            prototype.keys,
            prototype.tags,
            prototype.properties,
            prototype.queue_id,
            prototype.sharding_key,
        )

    return message


def keyed(prototype: Message, separator: bytes) -> ToMessage:
    """The key, `separator`, the body. The key is one more of the message's keys, and its sharding
    key unless `prototype` has one: lines of equal keys stay in order."""
    common = [prototype.keys] if isinstance(prototype.keys, str) else list(prototype.keys)

    def message(line: bytes) -> Message:
        key, separated, body = line.partition(separator)
        if not separated:
            raise InvalidMessageError(f"no key separator {separator.decode()!r} in the line")
        try:
            text = key.decode()
        except UnicodeDecodeError:
            raise InvalidMessageError(f"the key is not UTF-8: {key[:MAX_SHOWN]!r}") from None
        return Message(
            prototype.topic,
            body,
            [each for each in (text, *common) if each],
            prototype.tags,
            prototype.properties,
            prototype.queue_id,
            prototype.sharding_key or text or None,
        )

    return message


class Rows:
    """JSON objects as `pull --format jsonl` writes them; `prototype` has what --tag and the like
    say, for what a row leaves open. `queue_count` is that of the topic they go to."""

    def __init__(self, prototype: Message, queues: Queues, queue_count: int) -> None:
        self._prototype = prototype
        self._queues = queues
        self._queue_count = queue_count

    def __call__(self, line: bytes) -> Message:
        """Raises InvalidMessageError for a line that is not such a row, and UnknownQueueError."""
        row = _row(line)
        prototype = self._prototype
        stored = _texts(row, "properties")
        own = {name: value for name, value in stored.items() if not is_reserved(name)}
        sharding_key = (
            _text(row, "sharding_key") or stored.get(SHARDING_KEY) or prototype.sharding_key
        )
        return Message(
            prototype.topic,
            _body(row),
            _keys(row) or prototype.keys,
            _text(row, "tags") or prototype.tags,
            {**(prototype.properties or {}), **own} or None,
            self._queue(row, sharding_key),
            sharding_key,
            _number(row, "flag") or 0,
            _number(row, "born_timestamp"),
        )

    def _queue(self, row: Mapping[str, Any], sharding_key: str | None) -> int | None:
        if self._prototype.queue_id is not None:
            return self._prototype.queue_id
        queue_id, count = _number(row, "queue_id"), self._queue_count
        if queue_id is None or self._queues is Queues.ANY:
            return None
        if queue_id < 0:
            raise InvalidMessageError(f"queue_id {queue_id} is negative")
        if self._queues is Queues.HASH:
            return None if sharding_key else queue_id % count
        if queue_id >= count:
            topic = self._prototype.topic
            raise UnknownQueueError(
                f"queue {queue_id} is not there: topic {topic!r} has {count}; make more (tandemlog "
                f"topic create {topic} --update --queues {queue_id + 1}), or use --queues hash",
                field="queue_id",
                limit=count,
                actual=queue_id,
            )
        return queue_id


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidMessageError(f"no JSON: {_short(line)}") from None
    if not isinstance(row, dict):
        raise InvalidMessageError(f"no JSON object: {_short(line)}")
    unknown = sorted(set(row) - _USED - _MADE_BY_THE_STORE)
    if unknown:
        raise InvalidMessageError(
            f"unknown field {unknown[0]!r}; there are {', '.join(sorted(_USED))}, and what the "
            "store made (pull --format jsonl writes it) is ignored"
        )
    return row


def _short(line: bytes) -> str:
    text = line[:MAX_SHOWN].decode(errors="backslashreplace")
    return repr(text + ("…" if len(line) > MAX_SHOWN else ""))


def _body(row: Mapping[str, Any]) -> bytes:
    if ("body" in row) is ("text" in row):
        raise InvalidMessageError("a row has either body (in base64) or text")
    if "text" in row:
        text = _text(row, "text")
        assert text is not None
        return text.encode()
    body = row["body"]
    if not isinstance(body, str):
        raise InvalidMessageError(
            f"body must be base64, as pull --format jsonl writes it, not {_short_value(body)}; a "
            "plain text goes into the field text"
        )
    try:
        decoded = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidMessageError(
            f"body is not base64: {_short_value(body)}; a plain text goes into the field text"
        ) from None
    return _decompressed(row, decoded)


def _decompressed(row: Mapping[str, Any], body: bytes) -> bytes:
    """`dump` writes a compressed body as it is stored, `pull` decompressed, with the same flag. The
    CRC is that of the stored one."""
    sys_flag, crc = _number(row, "sys_flag") or 0, _number(row, "body_crc")
    if not sys_flag & COMPRESSED or crc32(body) & CRC_MASK != crc:
        return body
    try:
        return unpacked(sys_flag, body)
    except FormatError as error:
        raise InvalidMessageError(str(error)) from None


def _keys(row: Mapping[str, Any]) -> list[str]:
    keys = row.get("keys")
    if isinstance(keys, list) and all(isinstance(each, str) for each in keys):
        return [_utf8("keys", each) for each in keys]
    return split_keys(_text(row, "keys") or "")


def _texts(row: Mapping[str, Any], name: str) -> dict[str, str]:
    texts = row.get(name)
    if texts is None:
        return {}
    if not isinstance(texts, dict):
        raise InvalidMessageError(f"{name} must be an object of texts, not {_short_value(texts)}")
    for key, value in texts.items():
        if not isinstance(value, str):
            raise InvalidMessageError(f"{name}: {key!r} must be a text, not {_short_value(value)}")
        _utf8(name, key)
        _utf8(name, value)
    return texts


def _text(row: Mapping[str, Any], name: str) -> str | None:
    text = row.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidMessageError(f"{name} must be a text, not {_short_value(text)}")
    return _utf8(name, text)


def _utf8(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidMessageError(f"{name}: not valid Unicode: {text[:MAX_SHOWN]!r}") from None
    return text


def _number(row: Mapping[str, Any], name: str) -> int | None:
    number = row.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or abs(number) > _LIMITS[name]:
        raise InvalidMessageError(
            f"{name} must be a whole number up to {_LIMITS[name]}, not {_short_value(number)}"
        )
    return number


def _short_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"

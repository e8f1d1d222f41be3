"""RocketMQ's remoting protocol, as pure code: the requests between brokers and name servers.

    | i32 length of the rest | u8 format | u24 length of the header | header | body |

The header is JSON here (format 0): code, opaque (which pairs a response with its request), flag
(bit 0: a response), remark (the error's text), extFields (the arguments, all of them texts). A peer
may also use RocketMQ's binary header (format 1); a response has the format of its request.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Any

from tandemlog.format.words import shortened
from tandemlog_server.ha.errors import ProtocolError

JSON_HEADER = 0
BINARY_HEADER = 1
RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
SUCCESS = 0
SYSTEM_ERROR = 1
NOT_SUPPORTED = 3
MAX_COMMAND_BYTES = 64 << 20
MAX_HEADER_BYTES = 1 << 20
"""Fields are short texts, and a remark is a stack trace at the most."""
MAX_FAULT = 300
"""Characters of a fault that may quote what the peer sent."""
VERSION = 394
"""RocketMQ's number of its version 4.9.7, which every later peer knows."""
PYTHON = 3
"""RocketMQ's number of the language."""

_LENGTH = Struct(">i")
_BINARY = Struct(">hBhii")
_SHORT = Struct(">h")


@dataclass(frozen=True, slots=True)
class Command:
    """A request, or the response to one. For a request `code` says what is asked for, for a
    response it is 0 if all is well."""

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    header_format: int = JSON_HEADER

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether the peer waits for no response."""
        return bool(self.flag & ONEWAY_FLAG)

    def response(
        self,
        body: bytes = b"",
        *,
        code: int = SUCCESS,
        remark: str = "",
        fields: Mapping[str, str] | None = None,
    ) -> "Command":
        """The response to this request."""
        return Command(
            code, self.opaque, RESPONSE_FLAG, remark, fields or {}, body, self.header_format
        )


def encode_command(command: Command) -> bytes:
    """The command as it goes over the wire."""
    binary = command.header_format == BINARY_HEADER
    header = _binary_header(command) if binary else _json_header(command)
    length = _LENGTH.size + len(header) + len(command.body)
    mark = command.header_format << 24 | len(header)
    return b"".join((_LENGTH.pack(length), _LENGTH.pack(mark), header, command.body))


class CommandReader:
    """A peer's stream, taken apart. A command of more than `max_bytes` is refused by its length,
    before its bytes are waited for."""

    def __init__(self, max_bytes: int = MAX_COMMAND_BYTES) -> None:
        self._buffer = bytearray()
        self.max_bytes = max_bytes

    def feed(self, data: bytes) -> list[Command]:
        """The commands that are whole. Raises ProtocolError for bytes that are no commands."""
        self._buffer += data
        commands = []
        while len(self._buffer) >= 2 * _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if not _LENGTH.size <= length <= self.max_bytes:
                raise ProtocolError(
                    f"a command of {length} bytes came, the most here is {self.max_bytes}: is it "
                    "the port of a RocketMQ broker or name server?"
                )
            if len(self._buffer) < _LENGTH.size + length:
                break
            commands.append(_decode(bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])))
            del self._buffer[: _LENGTH.size + length]
        return commands


def _decode(data: bytes) -> Command:
    (mark,) = _LENGTH.unpack_from(data)
    header_format, length = mark >> 24 & 0xFF, mark & 0xFFFFFF
    end = _LENGTH.size + length
    if end > len(data):
        raise ProtocolError(f"a header of {length} bytes came in a command of {len(data)} bytes")
    if length > MAX_HEADER_BYTES:
        raise ProtocolError(f"a header of {length} bytes came, the most is {MAX_HEADER_BYTES}")
    header, body = data[_LENGTH.size : end], data[end:]
    if header_format == JSON_HEADER:
        return _from_json(header, body)
    if header_format == BINARY_HEADER:
        return _from_binary(header, body)
    raise ProtocolError(f"a header of the unknown format {header_format} came")


def _json_header(command: Command) -> bytes:
    document: dict[str, Any] = {
        "code": command.code,
        "extFields": dict(command.fields),
        "flag": command.flag,
        "language": "PYTHON",
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION,
    }
    if command.remark:
        document["remark"] = command.remark
    return json.dumps(document, separators=(",", ":")).encode()


def _from_json(header: bytes, body: bytes) -> Command:
    try:
        document = json.loads(header)
        fields = document.get("extFields") or {}
        return Command(
            code=int(document["code"]),
            opaque=int(document.get("opaque", 0)),
            flag=int(document.get("flag", 0)),
            remark=str(document.get("remark") or ""),
            fields={str(key): str(value) for key, value in fields.items()},
            body=body,
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as fault:
        raise ProtocolError(
            f"a remoting header cannot be read: {shortened(repr(fault), MAX_FAULT)}"
        ) from None


def _binary_header(command: Command) -> bytes:
    remark = command.remark.encode()
    fields = b"".join(
        _SHORT.pack(len(name.encode()))
        + name.encode()
        + _LENGTH.pack(len(value.encode()))
        + value.encode()
        for name, value in command.fields.items()
    )
    return b"".join(
        (
            _BINARY.pack(command.code, PYTHON, VERSION, command.opaque, command.flag),
            _LENGTH.pack(len(remark)),
            remark,
            _LENGTH.pack(len(fields)),
            fields,
        )
    )


def _from_binary(header: bytes, body: bytes) -> Command:
    try:
        code, _language, _version, opaque, flag = _BINARY.unpack_from(header)
        remark, at = _text(header, _BINARY.size)
        (end,) = _LENGTH.unpack_from(header, at)
        at += _LENGTH.size
        end += at
        fields = {}
        while at < end:
            (length,) = _SHORT.unpack_from(header, at)
            if length < 0:
                raise error(f"a name of {length} bytes at {at}")
            name = header[at + _SHORT.size : at + _SHORT.size + length].decode()
            fields[name], at = _text(header, at + _SHORT.size + length)
    except (error, UnicodeDecodeError) as fault:
        raise ProtocolError(
            f"a remoting header cannot be read: {shortened(repr(fault), MAX_FAULT)}"
        ) from None
    return Command(code, opaque, flag, remark, fields, body, BINARY_HEADER)


def _text(header: bytes, at: int) -> tuple[str, int]:
    """The text at `at`, and where it ends."""
    (length,) = _LENGTH.unpack_from(header, at)
    end = at + _LENGTH.size + max(length, 0)
    if end > len(header):
        raise error(f"a text of {length} bytes at {at} of {len(header)}")
    return header[at + _LENGTH.size : end].decode(), end

"""RocketMQ's remoting protocol, as pure code: requests and responses between all that speak it.

    | i32 length of the rest | u8 format | u24 length of the header | header | body |

A header has code, opaque (which pairs a response with its request), flag (a response, or a request
without one), the peer's version and language, remark (the error's text), and extFields (the
arguments). It is JSON (format 0) or RocketMQ's binary header (format 1); a response has the
format of its request.

    extFields of a peer     {"queueId":3, "m":false, "x":null}     the C++ client sends numbers
    fields of a Command     {"queueId":"3", "m":"false"}           always texts
    extFields of a response {"queueId":"3"}                        the Go client takes only texts

A JSON header is written without an encoder, since all of its values are numbers and texts: it is
the largest part of what a small request costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from json import JSONDecoder
from json.encoder import encode_basestring_ascii as quoted_json
from struct import Struct, error
from typing import Any, Final, cast

from tandemlog.format.words import shortened
from tandemlog_server.ha.errors import ProtocolError

JSON_HEADER: Final = 0
BINARY_HEADER: Final = 1
RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2
SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
NOT_SUPPORTED: Final = 3
MAX_COMMAND_BYTES: Final = 64 << 20
MAX_HEADER_BYTES: Final = 1 << 20
"""Fields are short texts, and a remark is a stack trace at the most."""
MAX_FIELDS: Final = 256
"""A client of RocketMQ sends 25 at the most."""
MAX_FAULT: Final = 300
"""Characters of a fault that may quote what the peer sent."""
MAX_BINARY_CODE: Final = 0x7FFF
"""The binary header has 16 bits for a code."""
VERSION: Final = 394
"""Of a request: one that every broker since 4.9 knows."""
RESPONSE_VERSION: Final = 513
"""Of a response: RocketMQ 5.5.0's. A client refuses filters in SQL towards an older broker."""
LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
)  # fmt: skip
"""By RocketMQ's numbers."""
PYTHON: Final = LANGUAGES.index("PYTHON")
OTHER: Final = LANGUAGES.index("OTHER")

_LENGTH = Struct(">i")
_HEAD = Struct(">iI")
_MARK = Struct(">I")
_BINARY = Struct(">hBhii")
_SHORT = Struct(">h")
_INTEGERS = range(-(1 << 31), 1 << 31)
_SHORTS = range(-(1 << 15), 1 << 15)


@dataclass(slots=True)
class Command:
    """A request, or the response to one. For a request `code` says what is asked for, for a
    response it is 0 if all is well. `version` and `language` are those of who sent it."""

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    header_format: int = JSON_HEADER
    version: int = VERSION
    language: str = "PYTHON"

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
            code,
            self.opaque,
            RESPONSE_FLAG,
            remark,
            {} if fields is None else fields,
            body,
            self.header_format,
            RESPONSE_VERSION,
        )


def encode_command(command: Command) -> bytes:
    """The command as it goes over the wire. Raises ProtocolError for a number that the binary
    header has no room for."""
    return b"".join(encoded_parts(command))


def encoded_parts(command: Command) -> tuple[bytes, bytes, bytes]:
    """The same in three parts, of which the last one is the body itself."""
    binary = command.header_format == BINARY_HEADER
    header = _binary_header(command) if binary else _json_header(command)
    body = command.body
    length = _LENGTH.size + len(header) + len(body)
    return _HEAD.pack(length, command.header_format << 24 | len(header)), header, body


class CommandReader:
    """A peer's stream, taken apart. A command of more than `max_bytes`, or with a header of more
    than `max_header`, is refused by its length, before its bytes are waited for."""

    def __init__(
        self, max_bytes: int = MAX_COMMAND_BYTES, max_header: int = MAX_HEADER_BYTES
    ) -> None:
        self._buffer = bytearray()
        self.max_bytes = max_bytes
        self.max_header = max_header
        self.announced = 0
        """Size of the command that has begun and is not whole: 4 until its length is known, 0 if
        there is none."""

    def feed(self, data: bytes | memoryview) -> list[Command]:
        """The commands that are whole. Raises ProtocolError for bytes that are no commands."""
        commands: list[Command] = []
        fault = self.take(data, commands)
        if fault is not None:
            raise fault
        return commands

    def take(self, data: bytes | memoryview, commands: list[Command]) -> ProtocolError | None:
        """The same with those that are whole put into `commands`; the fault of the first bytes
        that are no command is returned, so that the commands before them are not lost."""
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self.announced:
                return None
            data = bytes(buffer)
            buffer.clear()
        at, size = 0, len(data)
        try:
            while size - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(data, at)
                if not _LENGTH.size <= length <= self.max_bytes:
                    raise ProtocolError(
                        f"a command of {length} bytes came, the most here is {self.max_bytes}: is "
                        "it the port of a RocketMQ broker or name server?"
                    )
                end = at + _LENGTH.size + length
                mark = 0
                if size - at >= _HEAD.size:
                    (mark,) = _MARK.unpack_from(data, at + _LENGTH.size)
                    header = mark & 0xFFFFFF
                    if header > length - _LENGTH.size or header > self.max_header:
                        raise self._unfit(header, length)
                if end > size:
                    self.announced = _LENGTH.size + length
                    buffer += data[at:]
                    return None
                commands.append(_decode(data, at + _HEAD.size, end, mark))
                at = end
        except ProtocolError as fault:
            return fault
        buffer += data[at:]
        self.announced = _LENGTH.size if buffer else 0
        return None

    def _unfit(self, header: int, length: int) -> ProtocolError:
        if header > length - _LENGTH.size:
            return ProtocolError(f"a header of {header} bytes came in a command of {length} bytes")
        return ProtocolError(f"a header of {header} bytes came, the most is {self.max_header}")


def _decode(data: bytes | memoryview, begin: int, end: int, mark: int) -> Command:
    """The command whose header begins at `begin`; `mark` says the header's format and length."""
    split = begin + (mark & 0xFFFFFF)
    body = bytes(data[split:end]) if split < end else b""
    header_format = mark >> 24
    if header_format == JSON_HEADER:
        return _from_json(bytes(data[begin:split]), body)
    if header_format == BINARY_HEADER:
        return _from_binary(bytes(data[begin:split]), body)
    raise ProtocolError(f"a header of the unknown format {header_format} came")


# ---- the header in JSON


def _json_header(command: Command) -> bytes:
    quote = quoted_json
    fields = ",".join([f"{quote(key)}:{quote(value)}" for key, value in command.fields.items()])
    remark = f',"remark":{quote(command.remark)}' if command.remark else ""
    return (
        f'{{"code":{command.code},"extFields":{{{fields}}},"flag":{command.flag},"language":'
        f'{quote(command.language)},"opaque":{command.opaque}{remark},'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version}}}'
    ).encode()


_scan = cast("Any", JSONDecoder()).scan_once  # which its stubs do not know


def _from_json(header: bytes, body: bytes) -> Command:
    try:
        text = header.decode()
        document, end = _scan(text, 0)
        if end != len(text) and text[end:].strip():
            raise ValueError("there is more behind the JSON object")
        get = document.get
        fields = get("extFields")
        if fields:
            fields = _texts(fields)
            # half of a character that has two halves can be written in JSON, and nowhere else
            if b"\\ud" in header or b"\\uD" in header:
                _check_letters(fields)
        code, opaque, flag = document["code"], get("opaque", 0), get("flag", 0)
        version = get("version", 0)
        language = get("language") or ""
        if not (
            code.__class__ is opaque.__class__ is flag.__class__ is version.__class__ is int
            and code in _INTEGERS
            and opaque in _INTEGERS
            and flag in _INTEGERS
        ):
            code, opaque, flag, version = map(_integer, (code, opaque, flag, version))
        return Command(
            code,
            opaque,
            flag,
            str(get("remark") or ""),
            fields or {},
            body,
            JSON_HEADER,
            version,
            language if language in LANGUAGES else "OTHER",
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        StopIteration,
    ) as fault:
        raise ProtocolError(
            f"a remoting header cannot be read: {shortened(repr(fault), MAX_FAULT)}"
        ) from None


def _texts(fields: Any) -> dict[str, str]:
    """`fields` with texts in place of numbers and truth values. Raises ValueError."""
    if len(fields) > MAX_FIELDS:
        raise ValueError(f"extFields has {len(fields)} fields, the most is {MAX_FIELDS}")
    for value in fields.values():
        if value.__class__ is not str:
            break
    else:
        texts: dict[str, str] = fields
        return texts
    return {key: _text(value) for key, value in fields.items() if value is not None}


def _text(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"a field of the header is a {type(value).__name__}, and no text")


def _check_letters(fields: Mapping[str, str]) -> None:
    for key, value in fields.items():
        key.encode()
        value.encode()


def _integer(value: object) -> int:
    number = int(value) if isinstance(value, int | str) else None
    if number is None or number not in _INTEGERS:
        raise ValueError(f"a number of 32 bits is {shortened(repr(value), MAX_FAULT)}")
    return number


# ---- the binary header


def _binary_header(command: Command) -> bytes:
    remark = command.remark.encode(errors="replace")
    parts: list[bytes] = []
    for name, value in command.fields.items():
        key, text = name.encode(errors="replace"), value.encode(errors="replace")
        parts += (_SHORT.pack(len(key)), key, _LENGTH.pack(len(text)), text)
    fields = b"".join(parts)
    language = LANGUAGES.index(command.language) if command.language in LANGUAGES else OTHER
    version = command.version if command.version in _SHORTS else VERSION
    try:
        head = _BINARY.pack(command.code, language, version, command.opaque, command.flag)
    except error:
        raise ProtocolError(
            f"code {command.code} does not fit the binary header, whose largest is "
            f"{MAX_BINARY_CODE}: use JSON headers"
        ) from None
    return b"".join((head, _LENGTH.pack(len(remark)), remark, _LENGTH.pack(len(fields)), fields))


def _from_binary(header: bytes, body: bytes) -> Command:
    fields: dict[str, str] = {}
    try:
        code, language, version, opaque, flag = _BINARY.unpack_from(header)
        remark, at = _text_at(header, _BINARY.size)
        (end,) = _LENGTH.unpack_from(header, at)
        at += _LENGTH.size
        end += at
        size, ascii_text = len(header), header.decode() if header.isascii() else ""
        short, number = _SHORT.unpack_from, _LENGTH.unpack_from
        while at < end:
            begin = at + 2
            (length,) = short(header, at)
            if length < 0:
                raise error(f"a name of {length} bytes at {at}")
            at = begin + length
            (length,) = number(header, at)
            first, last = at + 4, at + 4 + (length if length > 0 else 0)
            if last > size:
                raise error(f"a text of {length} bytes at {at} of {size}")
            if ascii_text:  # places of letters are those of bytes
                fields[ascii_text[begin:at]] = ascii_text[first:last]
            else:
                fields[header[begin:at].decode()] = header[first:last].decode()
            at = last
            if len(fields) > MAX_FIELDS:
                raise error(f"more than {MAX_FIELDS} fields")
    except (error, UnicodeDecodeError) as fault:
        raise ProtocolError(
            f"a remoting header cannot be read: {shortened(repr(fault), MAX_FAULT)}"
        ) from None
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Command(code, opaque, flag, remark, fields, body, BINARY_HEADER, version, name)


def _text_at(header: bytes, at: int) -> tuple[str, int]:
    """The text at `at`, and where it ends."""
    (length,) = _LENGTH.unpack_from(header, at)
    end = at + _LENGTH.size + max(length, 0)
    if end > len(header):
        raise error(f"a text of {length} bytes at {at} of {len(header)}")
    return header[at + _LENGTH.size : end].decode(), end

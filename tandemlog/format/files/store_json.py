"""JSON as RocketMQ's configuration files have it (fastjson): not quite JSON.

    {
    ⇥"offsetTable":{
    ⇥⇥"Orders@GID_reader":{
    ⇥⇥⇥0:282,                  integer keys stand unquoted
    ⇥⇥⇥1:253
    ⇥⇥}
    ⇥}
    }

Read: real JSON, unquoted integer keys (they become int), unquoted names, strings in single
quotes. Written: RocketMQ's shape, tabs and no blank after a colon; int keys unquoted, members in
the order given (RocketMQ sorts the fields of an object and leaves the keys of a table as they
come). So what was read is written back byte for byte.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..errors import FormatError

MAX_DEPTH: Final = 100

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_STRINGS: Final = {
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_text: Final[Callable[[str], str]] = json.encoder.encode_basestring
"""In double quotes, with the escapes that JSON needs; in C."""
_WORDS: Final = {"null": None, "true": True, "false": False}


def loads(data: str | bytes | bytearray | memoryview) -> object:
    """The value in `data`: dict (keys str, or int where unquoted), list, str, int, float, bool
    or None. Raises FormatError naming line and column."""
    if isinstance(data, str):
        text = data
    else:
        try:
            text = bytes(data).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise FormatError(f"JSON: byte {error.start} is not UTF-8") from error
    return _Reader(text).document()


class _Reader:
    """Recursive descent over one text; `_at` is the position of what comes next."""

    __slots__ = ("_at", "_depth", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def document(self) -> object:
        value = self._value()
        if self._next():
            raise self._fault("there is more after the end of the value")
        return value

    def _fault(self, reason: str) -> FormatError:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - (self._text.rfind("\n", 0, self._at) + 1) + 1
        return FormatError(f"JSON: line {line}, column {column}: {reason}")

    def _next(self) -> str:
        """The next character that is no blank, not taken yet; empty at the end."""
        match = _SPACE.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        return match[0]

    def _value(self) -> object:
        character = self._next()
        if character in ("{", "["):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise self._fault(f"more than {MAX_DEPTH} levels")
            value = self._object() if character == "{" else self._array()
            self._depth -= 1
            return value
        if character in _STRINGS:
            return self._string(character)
        number = self._take(_NUMBER)
        if number is not None:
            return self._number(number)
        start = self._at
        word = self._take(_NAME)
        if word is None or word not in _WORDS:
            self._at = start
            raise self._fault("a value is expected")
        return _WORDS[word]

    def _number(self, text: str) -> int | float:
        if text.lstrip("-").isdigit():
            if len(text) > 40:
                raise self._fault(f"a number of {len(text)} digits")
            return int(text)
        return float(text)

    def _string(self, quote: str) -> str:
        match = _STRINGS[quote].match(self._text, self._at)
        if match is None:
            raise self._fault("a text has no end")
        self._at = match.end()
        if "\\" not in match[1]:
            return match[1]
        text = _ESCAPE.sub(_unescape, match[1])
        # Characters beyond the basic plane come as two escapes: a pair of surrogates.
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")

    def _object(self) -> dict[int | str, object]:
        members: dict[int | str, object] = {}
        self._at += 1
        if self._next() == "}":
            self._at += 1
            return members
        while True:
            key = self._key()
            if self._next() != ":":
                raise self._fault("a colon is expected")
            self._at += 1
            members[key] = self._value()
            if not self._more("}"):
                return members

    def _array(self) -> list[object]:
        items: list[object] = []
        self._at += 1
        if self._next() == "]":
            self._at += 1
            return items
        while True:
            items.append(self._value())
            if not self._more("]"):
                return items

    def _more(self, end: str) -> bool:
        character = self._next()
        if character not in (",", end):
            raise self._fault(f"a comma or {end} is expected")
        self._at += 1
        return character == ","

    def _key(self) -> int | str:
        character = self._next()
        if character in _STRINGS:
            return self._string(character)
        integer = self._take(_INTEGER)
        if integer is not None:
            return int(integer)
        name = self._take(_NAME)
        if name is None:
            raise self._fault("a name is expected")
        return name


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _ESCAPED.get(escaped, escaped)


def dumps(value: object, *, pretty: bool = True) -> str:
    """`value` in RocketMQ's shape, or without any blank. Raises FormatError for a value that JSON
    has no form for, a key that is neither str nor int, or more than 100 levels."""
    pieces: list[str] = []
    _write(value, pieces.append, "\n" if pretty else "", 0)
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"JSON: not valid Unicode text: {error}") from error
    return text


def _write(value: object, add: Callable[[str], None], line: str, depth: int) -> None:
    """`line` is what begins a line at the level of `value`: empty if all is one line."""
    if depth > MAX_DEPTH:
        raise FormatError(f"JSON: more than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        inner = line and line + "\t"
        start, following = "{" + inner, "," + inner
        for key, item in value.items():
            # what most members are costs no call of ours: tables have ten thousands of them
            name = _text(key) + ":" if type(key) is str else _key_text(key)
            if type(item) is str:
                add(start + name + _text(item))
            elif type(item) is int:
                add(f"{start}{name}{item}")
            else:
                add(start + name)
                _write(item, add, inner, depth + 1)
            start = following
        add(line + "}" if value else "{}")
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        inner = line and line + "\t"
        start, following = "[" + inner, "," + inner
        for item in value:
            add(start)
            _write(item, add, inner, depth + 1)
            start = following
        add(line + "]" if value else "[]")
    else:
        add(_scalar_text(value))


def _key_text(key: object) -> str:
    if isinstance(key, str):
        return _text(key) + ":"
    if isinstance(key, int) and not isinstance(key, bool):
        return f"{key}:"
    raise FormatError(f"JSON: a key of type {type(key).__name__}")


def _scalar_text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    raise FormatError(f"JSON: no form for {value!r} of type {type(value).__name__}")

"""What the text of an option may be, one function a kind: each returns the value, or raises
ValueError or FormatError with what is wrong. `parsed` makes that an OptionError with the option's
name.
"""

import json
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from tandemlog.format.constants import group_fault, topic_fault
from tandemlog.format.errors import FormatError
from tandemlog.format.filter.parser import parse
from tandemlog.format.record.producer_mark import MAX_PRODUCER_ID, producer_id_fault
from tandemlog.format.record.tags import parse_tags
from tandemlog.logs.job_errors import OptionError

from .queue_offsets import EARLIEST, LATEST, Position, parse_offsets, parse_times

PARTITION_DIGITS: Final = 7
"""Room for `:partition` behind a name that the user gives to a writer."""
Parser = Callable[[str], Any]


def parsed(name: str, parse: Parser, text: str) -> Any:
    """The value of option `name`. Raises OptionError."""
    try:
        return parse(str(text))
    except (ValueError, FormatError) as error:
        raise OptionError(f"option {name}={text!r}: {error}") from None


def text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _without(fault: str | None, text: str) -> str:
    if fault is not None:
        raise ValueError(fault)
    return text


def topic(text: str) -> str:
    return _without(topic_fault(text, new=False), text)


def topics(text: str) -> tuple[str, ...]:
    return tuple(topic(each) for each in names(text))


def names(text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(",") if each.strip())
    if not names:
        raise ValueError("contains no name")
    return tuple(dict.fromkeys(names))


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return text


def group(text: str) -> str:
    return _without(group_fault(text, new=False), text)


def tags(text: str) -> str | None:
    return text if parse_tags(text) is not None else None


def where(text: str) -> str:
    parse(text)
    return text


def boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("must be true or false")
    return word == "true"


def whole(least: int, most: int = (1 << 63) - 1) -> Parser:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not least <= number <= most:
            raise ValueError(f"must be between {least} and {most}")
        return number

    return parse


def size(least: int, most: int) -> Parser:
    """Bytes, with k, m or g for powers of 1,024."""
    count = whole(0)

    def parse(text: str) -> int:
        match = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.strip().lower())
        if match is None:
            raise ValueError("must be a number of bytes, for example 3m")
        number: int = count(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]
        if not least <= number <= most:
            raise ValueError(f"must be between {least} and {most} bytes")
        return number

    return parse


_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration(text: str) -> int:
    """In ms: digits alone are ms, else with a unit."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    unit = _UNITS.get(match[2] or "ms") if match else None
    if match is None or unit is None:
        raise ValueError(f"must be a number and one of {', '.join(_UNITS)}, for example 15m")
    return int(match[1]) * unit


def one_of(kind: type[Enum]) -> Parser:
    def parse(text: str) -> Enum:
        try:
            return kind(text.strip().lower())
        except ValueError:
            raise ValueError(f"must be {' or '.join(each.value for each in kind)}") from None

    return parse


def writer_name(text: str) -> str:
    _without(producer_id_fault(text), text)
    if len(text) > MAX_PRODUCER_ID - PARTITION_DIGITS:
        raise ValueError(f"must not have more than {MAX_PRODUCER_ID - PARTITION_DIGITS} characters")
    return text


def _offsets_position(text: str, words: tuple[str, ...]) -> Position:
    word = text.strip().lower()
    if word in words:
        return Position(everywhere=EARLIEST if word == "earliest" else LATEST)
    if not text.lstrip().startswith("{"):
        raise ValueError(f"must be {' or '.join(words)}, or JSON like {_SAMPLE}")
    return Position(offsets=parse_offsets(json.loads(text)))


_SAMPLE: Final = '{"topic": {"0": 123, "1": -2}}'


def starting(text: str) -> Position:
    return _offsets_position(text, ("earliest", "latest"))


def ending(text: str) -> Position:
    position = _offsets_position(text, ("latest",))
    if EARLIEST in (position.offsets or {}).values():
        raise ValueError(f"a read cannot end at the earliest offset ({EARLIEST})")
    return position


def at_time(text: str) -> Position:
    return Position(time=whole(0)(text))


def at_times(text: str) -> Position:
    return Position(times=parse_times(json.loads(text)))

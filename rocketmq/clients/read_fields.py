"""Fields of a request's header as values: all of them come as texts, from strangers.

A field that is missing, or no number, or out of its range, is a FormatError that names it.
"""

from collections.abc import Mapping
from typing import Final

from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted

I32: Final = range(-(1 << 31), 1 << 31)
I64: Final = range(-(1 << 63), 1 << 63)
_MOST_DIGITS: Final = 20
_SMALL: Final[Mapping[str, int]] = {str(number): number for number in range(1024)}

Fields = Mapping[str, str]


def text(fields: Fields, name: str) -> str:
    """Raises FormatError if it is missing or empty."""
    value = fields.get(name, "")
    if not value:
        raise FormatError(f"the header has no field {name}")
    return value


def integer(fields: Fields, name: str, default: int | None = None, within: range = I64) -> int:
    """`default` where the field is missing or empty. Raises FormatError."""
    value = fields.get(name, "")
    number = _SMALL.get(value)
    if number is not None:  # nearly every number of a header; all of them are in every range
        return number
    if not value:
        if default is None:
            raise FormatError(f"the header has no field {name}")
        return default
    try:
        number = int(value) if len(value) <= _MOST_DIGITS else None
    except ValueError:
        number = None
    if number is None or number not in within:
        raise FormatError(
            f"field {name} of the header is {quoted(value)}: it is a whole number from "
            f"{within.start} to {within.stop - 1}"
        )
    return number


def flag(fields: Fields, name: str, *, default: bool = False) -> bool:
    """Java writes true and false."""
    value = fields.get(name, "")
    return value.lower() == "true" if value else default

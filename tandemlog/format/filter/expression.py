"""What a filter says, as a tree; and which trees RocketMQ refuses.

    amount > 5 AND region IN ('eu', 'us')

    And ── Compare(>) ── Property(amount)
     │         └──────── Number(5, INT)
     └──── In ────────── Property(region), eu, us

All properties of a message are texts, so numbers come from literals alone. A literal decides how
the text beside it is read: beside 5 as Java's Integer.valueOf, beside 3000000000 as
Long.valueOf, beside 5.0 as Double.valueOf. So "5.5" compared with 5 cannot be read, and the
message does not match.

Source: org.apache.rocketmq.filter.expression of RocketMQ 5.3, which has it from ActiveMQ. LIKE is
ours: RocketMQ has taken it out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ..errors import FormatError
from ..words import shortened


class FilterError(FormatError):
    """A filter that cannot be parsed or compared; `position` counts characters from 0."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        where = "" if position is None else f" at character {position + 1}"
        super().__init__(f"filter{where}: {reason}")
        self.position = position


class NumberKind(Enum):
    """Java's type of a literal, and so of the text that is compared with it."""

    INT = 32
    LONG = 64
    DOUBLE = 0


@dataclass(frozen=True, slots=True)
class Number:
    """`signed`: behind a minus. RocketMQ takes it for an expression then, and refuses nothing."""

    value: int | float
    kind: NumberKind
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Property:
    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """A minus before anything but a number: never a number itself, so it is NULL."""

    of: "Operand"


@dataclass(frozen=True, slots=True)
class Compare:
    """`operator` is one of = < <= > >=."""

    operator: str
    left: "Operand"
    right: "Operand"


@dataclass(frozen=True, slots=True)
class IsNull:
    of: "Operand"


@dataclass(frozen=True, slots=True)
class In:
    """Which texts a property may be, or with `negated` may not be."""

    of: Property
    texts: frozenset[str]
    negated: bool


class SearchKind(Enum):
    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Search:
    """A text that is in a value, or with `negated` is not. FALSE, never NULL, without a value."""

    kind: SearchKind
    of: "Operand"
    text: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """`parts` come in this order, with anything between two of them; None in a part stands for
    any one character. NULL without a value."""

    of: "Operand"
    parts: tuple[tuple[str | None, ...], ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    of: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A property where a condition is wanted: a text is not TRUE, whatever it says."""

    of: Property


Condition = Compare | IsNull | In | Search | Like | Not | And | Or | IsTrue | Constant
Operand = Condition | Number | Text | Property | Negative

_INT_LEAST, _INT_MOST = -(1 << 31), (1 << 31) - 1
_LONG_MOST = (1 << 63) - 1
_SHOWN_DIGITS = 40


def whole_number(digits: str) -> Number:
    """A literal without a point. Raises FilterError beyond 64 bits."""
    plain = digits.rstrip("lL")
    value = int(plain) if len(plain) <= len(str(_LONG_MOST)) else _LONG_MOST + 1
    if value > _LONG_MOST:
        number = shortened(digits, _SHOWN_DIGITS)
        raise FilterError(f"{number} is more than {_LONG_MOST}, the largest whole number")
    return Number(value, NumberKind.INT if value <= _INT_MOST else NumberKind.LONG)


def decimal_number(text: str) -> Number:
    """A literal with a point or an exponent. Raises FilterError if it is too large for a double."""
    value = float(text)
    if value == float("inf"):
        raise FilterError(f"{text} is too large for a double")
    return Number(value, NumberKind.DOUBLE)


def negative(operand: Operand) -> Operand:
    """`- operand`, folded into a number where it is one."""
    if isinstance(operand, Number):
        return Number(-operand.value, operand.kind, signed=True)
    return Negative(operand)


def condition(operand: Operand) -> Condition:
    """Raises FilterError for what is neither true nor false."""
    if isinstance(operand, Property):
        return IsTrue(operand)
    if isinstance(operand, Number | Text | Negative):
        raise FilterError(f"{shown(operand)} is neither true nor false: compare it with something")
    return operand


def equal(left: Operand, right: Operand) -> Condition:
    """Raises FilterError beside NULL, and for TRUE or FALSE beside another literal."""
    for each in (left, right):
        if each == Constant(None):
            raise FilterError("nothing is equal to NULL: write IS NULL or IS NOT NULL")
    if isinstance(left, Constant) and _is_literal(right):
        raise FilterError(f"{shown(left)} cannot be compared with {shown(right)}")
    return Compare("=", left, right)


def ordered(operator: str, left: Operand, right: Operand) -> Condition:
    """One of < <= > >=. Raises FilterError for what has no order: texts, and conditions."""
    for each in (left, right):
        if isinstance(each, Text):
            raise FilterError(f"{shown(each)} has no order: {operator} compares only numbers")
        if not isinstance(each, Number | Property | Negative):
            raise FilterError(f"{shown(each)} cannot be compared by {operator}")
    return Compare(operator, left, right)


def between(value: Operand, low: Operand, high: Operand) -> Condition:
    """Raises FilterError as `ordered`, and if no number lies between the two."""
    both = And((ordered(">=", value, low), ordered("<=", value, high)))
    if not isinstance(low, Number) or not isinstance(high, Number):
        return both
    if _is_literal(low) and _is_literal(high) and high.value < low.value:
        raise FilterError(f"no number is between {shown(low)} and {shown(high)}: exchange the two")
    return both


def not_between(value: Operand, low: Operand, high: Operand) -> Condition:
    """Raises FilterError as `ordered`."""
    return Or((ordered("<", value, low), ordered(">", value, high)))


def one_of(value: Operand, texts: list[str], *, negated: bool) -> Condition:
    """Raises FilterError for anything but a property."""
    if not isinstance(value, Property):
        raise FilterError(f"{shown(value)}: IN needs the name of a property before it")
    return In(value, frozenset(texts), negated)


def like(value: Operand, pattern: str, escape: str | None, *, negated: bool) -> Condition:
    """% stands for any text and _ for any character, unless `escape` is before it. Raises
    FilterError for an escape of more than one character, or one that nothing follows."""
    if escape is not None and len(escape) != 1:
        raise FilterError(f"ESCAPE {escape!r}: one character is needed")
    parts: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            follows = next(characters, None)
            if follows is None:
                raise FilterError(f"LIKE {pattern!r} ends with its escape character")
            parts[-1].append(follows)
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(None if character == "_" else character)
    return Like(value, tuple(map(tuple, parts)), negated)


def _is_literal(operand: Operand) -> bool:
    return isinstance(operand, Text) or (isinstance(operand, Number) and not operand.signed)


def parts_of(operand: Operand) -> tuple[Operand, ...]:
    """The operands it is made of; none for a literal or a property."""
    match operand:
        case Compare(_, left, right):
            return left, right
        case And(parts) | Or(parts):
            return parts
        case Negative(of) | IsNull(of) | In(of) | Search(_, of) | Like(of) | Not(of) | IsTrue(of):
            return (of,)
        case _:
            return ()


def each_operand(condition: Condition) -> Iterator[Operand]:
    """All of the tree, each object once: BETWEEN has its first operand twice. Without recursion."""
    level: dict[int, Operand] = {id(condition): condition}
    while level:
        yield from level.values()
        level = {id(part): part for each in level.values() for part in parts_of(each)}


def property_names(condition: Condition) -> list[str]:
    """Each once."""
    names = [each.name for each in each_operand(condition) if isinstance(each, Property)]
    return list(dict.fromkeys(names))


def shown(operand: Operand) -> str:
    """As the filter has it, for messages."""
    match operand:
        case Number(value):
            return str(value)
        case Text(value):
            return "'" + value.replace("'", "''") + "'"
        case Constant(value):
            return {True: "TRUE", False: "FALSE", None: "NULL"}[value]
        case Property(name):
            return name
        case Negative(of):
            return f"- {shown(of)}"
        case _:
            return "a condition"

"""A filter on one message, step by step as RocketMQ's classes do it; and filters made at random.

An evaluation returns True, False or None (NULL), and raises ThrownError where RocketMQ throws.
"""

import math
import random
import re
from typing import Any

from tandemlog.format.filter.expression import (
    And,
    Compare,
    Constant,
    In,
    IsNull,
    IsTrue,
    Like,
    Negative,
    Not,
    Number,
    NumberKind,
    Operand,
    Or,
    Property,
    Search,
    SearchKind,
    Text,
)
from tandemlog.format.filter.text_column import java_double

VALUES = (
    "5", "-5", "+5", "05", "5.5", "5.", ".5", ".", "-", "+", "--5", "abc", "true", "TRUE", "false",
    "1e3", "1E-3", "NaN", "-0.0", "0", "-0", "0.0", "3000000000", "2147483647", "2147483648",
    "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", " 5 ", "5d", "5f", "0x1p3", "0x1.8p1f", "Infinity", "-Infinity",
    "1e999", "eu", "us", "eu-west", "it's", "\u00e9t\u00e9", "\u0663", "a b", "0.1",
    "0.30000000000000004",
    "123456789012345", "1234567890123456", "1.234567890123456", "12345.6789", "1_000", "0x10",
    "0" * 120 + "5", "\U000104a5",
)  # fmt: skip
NAMES = ("a", "b", "TAGS", "price_$1")
_NUMBERS = (
    "0", "5", "7", "2147483647", "2147483648", "3000000000L", "5l", "9223372036854775807", "5.0",
    "5.5", ".5", "1e3", "1.5E-3", "5.", "0.1",
)  # fmt: skip
_TEXTS = ("'eu'", "'us'", "'5'", "'it''s'", "''", "'e'", "'\u00e9'", "'true'", "'5.5'", "'a b'")


class ThrownError(Exception):
    """What RocketMQ logs and answers by leaving the message out."""


def selects(condition: Operand, properties: dict[str, str]) -> bool:
    try:
        return evaluate(condition, properties) is True
    except ThrownError:
        return False


def evaluate(operand: Operand, properties: dict[str, str]) -> Any:
    match operand:
        case Number():
            return operand
        case Text(value) | Constant(value):
            return value
        case Property(name):
            return properties.get(name)
        case Negative(of):
            evaluate(of, properties)
            return None
        case And(parts) | Or(parts):
            certain = isinstance(operand, Or)
            outcome: bool | None = evaluate(parts[0], properties)
            for part in parts[1:]:
                if outcome is certain:
                    return certain
                other = evaluate(part, properties)
                if other is certain:
                    outcome = certain
                elif outcome is not None:
                    outcome = None if other is None else not certain
            return outcome
        case Not(of):
            value = evaluate(of, properties)
            return None if value is None else not value
        case IsTrue(of):
            return None if evaluate(of, properties) is None else False
        case IsNull(of):
            return evaluate(of, properties) is None
        case In(of, texts, negated):
            value = evaluate(of, properties)
            return None if value is None else (value in texts) != negated
        case Search(kind, of, text, negated):
            value = evaluate(of, properties)
            if not text or not isinstance(value, str):
                return False
            test = {
                SearchKind.CONTAINS: str.__contains__,
                SearchKind.STARTS_WITH: str.startswith,
                SearchKind.ENDS_WITH: str.endswith,
            }
            return test[kind](value, text) != negated
        case Like(of, parts, negated):
            value = evaluate(of, properties)
            return _is_like(value, parts) != negated if isinstance(value, str) else None
        case Compare("=", left, right):
            return _equal(evaluate(left, properties), evaluate(right, properties))
        case Compare(operator, left, right):
            first = evaluate(left, properties)
            second = evaluate(right, properties)
            if first is None or second is None:
                return None
            return _holds(operator, _compare(first, second))
    raise AssertionError(operand)


def _is_like(text: str, parts: tuple[tuple[str | None, ...], ...]) -> bool:
    pieces = ["".join("." if each is None else re.escape(each) for each in part) for part in parts]
    return re.fullmatch(".*".join(pieces), text, re.DOTALL) is not None


def _equal(first: Any, second: Any) -> bool | None:
    if first is None or second is None:
        return True if first is second else None if first is None else False
    if isinstance(first, str) and isinstance(second, str):
        return first == second
    return _compare(first, second) == 0


def _holds(operator: str, order: int) -> bool:
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[operator]


def _compare(first: Any, second: Any) -> int:
    """Less than 0, 0 or more, as compareTo; RocketMQ's -1 for what it does not compare."""
    if isinstance(first, bool):
        if isinstance(second, str):
            raise ThrownError("a Boolean is cast to a String")
        return int(first) - int(second) if isinstance(second, bool) else -1
    if isinstance(second, bool):
        return int(first.lower() == "true") - int(second) if isinstance(first, str) else -1
    kinds = [each.kind for each in (first, second) if isinstance(each, Number)]
    if NumberKind.DOUBLE in kinds or not kinds:
        return _order(_double(first), _double(second))
    bits = max(kind.value for kind in kinds)
    one, two = _whole(first, bits), _whole(second, bits)
    return (one > two) - (one < two)


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, Number):
        return int(value.value)
    if (
        re.fullmatch(r"[+-]?\d+", value) is None
        or max(value) > "\uffff"  # a digit of two UTF-16 units is none
        or not -(1 << bits - 1) <= int(value) < 1 << bits - 1
    ):
        raise ThrownError(f"NumberFormatException: {value}")
    return int(value)


def _double(value: Any) -> float:
    if isinstance(value, Number):
        return float(value.value)
    number = java_double(value)
    if number is None:
        raise ThrownError(f"NumberFormatException: {value}")
    return number


def _order(first: float, second: float) -> int:
    def key(number: float) -> tuple[bool, float, float]:
        nan = math.isnan(number)
        return nan, 0.0 if nan else number, 0.0 if nan else math.copysign(1, number)

    one, two = key(first), key(second)
    return (one > two) - (one < two)


def a_like(rng: random.Random) -> str:
    """Beyond RocketMQ's grammar."""
    pattern = "".join(rng.choices("e5%_ut-.1", k=rng.randrange(7)))
    operand = rng.choice((*NAMES, "'east'", "5"))
    return f"{operand} {rng.choice(('', 'NOT '))}LIKE '{pattern}'"


def a_filter(rng: random.Random, depth: int = 3) -> str:
    """A condition of RocketMQ's grammar, with whatever operands; not each is accepted."""
    what = rng.randrange(14 if depth else 9)
    name, text = rng.choice(NAMES), rng.choice(_TEXTS)
    negated = rng.choice(("", "NOT "))
    if what == 0:
        return f"{_operand(rng)} {rng.choice(('<', '<=', '>', '>='))} {_operand(rng)}"
    if what in (1, 2):
        return f"{name} {rng.choice(('=', '<>', '<', '<=', '>', '>='))} {rng.choice(_NUMBERS)}"
    if what == 3:
        return f"{_operand(rng)} {rng.choice(('=', '<>'))} {_operand(rng)}"
    if what == 4:
        return f"{name} {negated}BETWEEN {_operand(rng)} AND {rng.choice(_NUMBERS)}"
    if what == 5:
        texts = ", ".join(rng.choices(_TEXTS, k=rng.randrange(1, 7)))
        return f"{name} {negated}IN ({texts})"
    if what == 6:
        return f"{_operand(rng)} IS {negated}NULL"
    if what in (7, 8):
        kind = rng.choice(("CONTAINS", "startsWith", "ENDSWITH"))
        return f"{name} {negated}{kind} {text}"
    inner = [a_filter(rng, depth - 1) for _ in range(rng.randrange(2, 4))]
    if what in (9, 10):
        return "(" + f" {rng.choice(('AND', 'OR'))} ".join(inner) + ")"
    if what == 11:
        return f" {rng.choice(('and', 'or'))} ".join(inner)
    if what == 12:
        return f"NOT ({inner[0]})"
    return f"({inner[0]}) = {rng.choice((f'({inner[1]})', 'TRUE', 'FALSE', name, '5'))}"


def _operand(rng: random.Random) -> str:
    if rng.randrange(10) == 0:
        return rng.choice(("TRUE", "FALSE", "NULL", rng.choice(_TEXTS), "-a", "- 'x'", "NOT a"))
    if rng.randrange(3):
        return rng.choice(NAMES)
    return rng.choice(("", "-", "+", "- -")) + rng.choice(_NUMBERS)


def some_properties(rng: random.Random) -> dict[str, str]:
    return {name: rng.choice(VALUES) for name in NAMES if rng.randrange(5)}

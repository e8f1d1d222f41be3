"""A filter over many messages at once: each part of its tree is one array of outcomes.

    amount > 5        T  F  N  E       true, false, NULL (no amount), error (not a number)
    region = 'eu'     F  T  F  T
    … OR …            T  T  N  E       as RocketMQ goes through it, from left to right

RocketMQ throws for an amount that is no number, and the message does not match, whatever comes
behind; but it does not look at what comes behind once the outcome is certain. So an error is an
outcome of its own, and AND and OR take their parts in order.

A literal is looked at once, as the text of a single message, and not for each message again.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .expression import (
    And,
    Compare,
    Condition,
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
from .like_pattern import LikePattern, Part
from .text_column import Bools, Numbers, TextColumn, order_keys

FALSE: Final = 0
TRUE: Final = 1
NULL: Final = 2
ERROR: Final = 3

Outcomes = NDArray[np.uint8]
Columns = Callable[[str], TextColumn]
"""The texts of a property, for all messages."""
Comparable = TextColumn | Number | Text
Value = Outcomes | Comparable

_NEGATED: Final = np.array([TRUE, FALSE, NULL, ERROR], np.uint8)


def _table(certain: int) -> Outcomes:
    """u1[left, right]: what two parts of an AND (certain when FALSE) or OR (TRUE) are together."""
    table = np.empty((4, 4), np.uint8)
    for left in range(4):
        for right in range(4):
            if left in (certain, ERROR):
                table[left, right] = left
            elif right in (certain, ERROR):
                table[left, right] = right
            else:
                table[left, right] = NULL if NULL in (left, right) else 1 - certain
    return table


_AND: Final = _table(FALSE)
_OR: Final = _table(TRUE)
_ORDER: Final[dict[str, Callable[[NDArray[np.int64], NDArray[np.int64]], Bools]]] = {
    "=": np.equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def matches(filter_: Condition, columns: Columns, count: int) -> Bools:
    """bool[count]: which of so many messages the filter selects."""
    selected: Bools = _Evaluation(columns, count).outcomes(filter_) == TRUE
    return selected


class _Evaluation:
    """One filter over one batch."""

    def __init__(self, columns: Columns, count: int) -> None:
        self._columns = columns
        self._count = count
        # BETWEEN has its first operand twice in the tree, and so has a BETWEEN in that operand
        self._negatives: dict[int, Outcomes] = {}

    def outcomes(self, condition: Condition) -> Outcomes:
        match condition:
            case Constant(value):
                return self._all({True: TRUE, False: FALSE, None: NULL}[value])
            case And(parts):
                return self._together(parts, _AND)
            case Or(parts):
                return self._together(parts, _OR)
            case Not(of):
                return _NEGATED[self.outcomes(of)]
            case IsTrue(of):
                return np.where(self._columns(of.name).present, np.uint8(FALSE), np.uint8(NULL))
            case In(of, texts, negated):
                column = self._columns(of.name)
                return _where(column.present, column.one_of(texts) ^ negated, NULL)
            case IsNull(of):
                return self._is_null(of)
            case Search():
                return self._search(condition)
            case Like(of, parts, negated):
                return self._like(of, parts, negated=negated)
            case Compare("=", left, right):
                return self._equal(left, right)
            case Compare(operator, left, right):
                return self._ordered(operator, left, right)

    def _all(self, outcome: int) -> Outcomes:
        return np.full(self._count, outcome, np.uint8)

    def _together(self, parts: tuple[Condition, ...], table: Outcomes) -> Outcomes:
        outcomes = self.outcomes(parts[0])
        for part in parts[1:]:
            outcomes = table[outcomes, self.outcomes(part)]
        return outcomes

    def _value(self, operand: Operand) -> Value:
        """What an operand is: a literal, the texts of a property, or outcomes."""
        match operand:
            case Number() | Text():
                return operand
            case Property(name):
                return self._columns(name)
            case Negative():
                return self._negative(operand)
            case _:
                return self.outcomes(operand)

    def _negative(self, operand: Negative) -> Outcomes:
        known = self._negatives.get(id(operand))
        if known is not None:
            return known
        value = self._value(operand.of)
        if isinstance(value, np.ndarray):
            outcomes = np.where(value == ERROR, np.uint8(ERROR), np.uint8(NULL))
        else:
            outcomes = self._all(NULL)
        self._negatives[id(operand)] = outcomes
        return outcomes

    def _is_null(self, of: Operand) -> Outcomes:
        value = self._value(of)
        if isinstance(value, TextColumn):
            return (~value.present).astype(np.uint8)
        if isinstance(value, np.ndarray):
            return np.where(value == ERROR, value, (value == NULL).astype(np.uint8))
        return self._all(FALSE)

    def _search(self, search: Search) -> Outcomes:
        value = self._value(search.of)
        if isinstance(value, np.ndarray):
            return np.where(value == ERROR, np.uint8(ERROR), np.uint8(FALSE))
        if not search.text or isinstance(value, Number):
            return self._all(FALSE)
        column = _single(value.value) if isinstance(value, Text) else value
        match search.kind:
            case SearchKind.CONTAINS:
                hits = column.containing(search.text)
            case SearchKind.STARTS_WITH:
                hits = column.starting_with(search.text)
            case SearchKind.ENDS_WITH:
                hits = column.ending_with(search.text)
        outcomes = ((hits ^ search.negated) & column.present).astype(np.uint8)
        return np.broadcast_to(outcomes, self._count)

    def _like(self, of: Operand, parts: tuple[Part, ...], *, negated: bool) -> Outcomes:
        value = self._value(of)
        if isinstance(value, np.ndarray):
            return np.where(value == ERROR, np.uint8(ERROR), np.uint8(NULL))
        if isinstance(value, Number):
            return self._all(NULL)
        column = _single(value.value) if isinstance(value, Text) else value
        hits = _like_hits(column, parts)
        return np.broadcast_to(_where(column.present, hits ^ negated, NULL), self._count)

    def _equal(self, left: Operand, right: Operand) -> Outcomes:
        first, second = self._value(left), self._value(right)
        errors = np.zeros(self._count, np.bool_)
        for value in (first, second):
            if isinstance(value, np.ndarray):
                errors |= value == ERROR
        no_first, no_second = self._absent(first), self._absent(second)
        same, wrong = self._same(first, second)
        outcomes = _where(~wrong, same, ERROR)
        outcomes[no_second] = FALSE
        outcomes[no_first] = NULL
        outcomes[no_first & no_second] = TRUE
        outcomes[errors] = ERROR
        return outcomes

    def _absent(self, value: Value) -> Bools:
        if isinstance(value, TextColumn):
            return ~value.present
        if isinstance(value, np.ndarray):
            absent: Bools = value == NULL
            return absent
        return np.zeros(self._count, np.bool_)

    def _same(
        self,
        first: Value,
        second: Value,
    ) -> tuple[Bools, Bools]:
        """Where two values that are there are equal, and where they cannot be compared."""
        never = np.zeros(self._count, np.bool_)
        if isinstance(first, np.ndarray):
            if isinstance(second, np.ndarray):
                return first == second, never
            # RocketMQ casts a text beside a condition, and fails; a number is another thing
            return never, never if isinstance(second, Number) else ~never
        if isinstance(second, np.ndarray):
            match first:
                case TextColumn():
                    return first.is_true() == (second == TRUE), never
                case Text(text):
                    return (text.lower() == "true") == (second == TRUE), never
                case Number():
                    return never, never
        match first, second:
            case TextColumn(), TextColumn():
                return first.equal_to_each(second), never
            case (TextColumn() as column, Text(text)) | (Text(text), TextColumn() as column):
                return column.equal_to(text), never
            case Text(text), Text(other):
                return np.full(self._count, text == other), never
            case _:
                return self._compared("=", first, second)

    def _ordered(self, operator: str, left: Operand, right: Operand) -> Outcomes:
        first, second = self._value(left), self._value(right)
        errors = np.zeros(self._count, np.bool_)
        for value in (first, second):
            if isinstance(value, np.ndarray):
                errors |= value == ERROR
        absent = self._absent(first) | self._absent(second)
        if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
            outcomes = self._all(NULL)
        else:
            holds, wrong = self._compared(operator, first, second)
            outcomes = _where(~wrong, holds, ERROR)
            outcomes[absent] = NULL
        outcomes[errors] = ERROR
        return outcomes

    def _compared(
        self,
        operator: str,
        first: Comparable,
        second: Comparable,
    ) -> tuple[Bools, Bools]:
        """Where a comparison of numbers holds, and where there is none to compare."""
        kind = _kind(first, second)
        mine, others = self._numbers(first, kind), self._numbers(second, kind)
        holds = _ORDER[operator](mine.values, others.values)
        wrong = ~(mine.valid & others.valid)
        return np.broadcast_to(holds, self._count), np.broadcast_to(wrong, self._count)

    def _numbers(self, value: Comparable, kind: NumberKind) -> Numbers:
        column = _single(value.value) if isinstance(value, Text) else value
        if isinstance(column, TextColumn):
            return (
                column.doubles() if kind is NumberKind.DOUBLE else column.whole_numbers(kind.value)
            )
        number = (
            order_keys(np.array([column.value], np.float64))
            if kind is NumberKind.DOUBLE
            else np.array([column.value], np.int64)
        )
        return Numbers(number, np.ones(1, np.bool_))


def _like_hits(column: TextColumn, parts: tuple[Part, ...]) -> Bools:
    """The usual patterns, `x`, `x%`, `%x`, `x%y` and `%x%`, by columns; others text by text."""
    if not any(None in part for part in parts):
        match ["".join(map(str, part)) for part in parts]:
            case [whole]:
                return column.equal_to(whole)
            case [first, last]:
                return column.starting_and_ending_with(first, last)
            case ["", inner, ""] if inner:
                return column.containing(inner)
    return column.each(LikePattern(parts).fits)


def _single(text: str) -> TextColumn:
    """A literal as the text of one message."""
    data = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    return TextColumn(data, np.zeros(1, np.int64), np.array([len(data)], np.int64))


def _kind(first: Comparable, second: Comparable) -> NumberKind:
    """As what both are compared: as the wider of the literals; two texts as doubles."""
    kinds = {value.kind for value in (first, second) if isinstance(value, Number)}
    for kind in (NumberKind.DOUBLE, NumberKind.LONG):
        if kind in kinds or not kinds:
            return kind
    return NumberKind.INT


def _where(there: Bools, holds: Bools, otherwise: int) -> Outcomes:
    return np.where(there, holds.astype(np.uint8), np.uint8(otherwise))

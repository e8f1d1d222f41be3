"""The texts of one property in n messages, and what a filter asks of them, for all at once.

    data    . . 1 2 . . 7 . . 4 2 0 . .      the records' bytes, in place
    starts      2     6   -1  9              -1: this message has no such property
    lengths     2     1    0  3

Numbers are read by columns of digits, all texts of one length together:

    "12"  "-7"  "40"      ──▶  1 2 / - 7 / 4 0  ──▶  12, -7, 40

What is not written so plainly (exponents, NaN, many digits, digits of other scripts) is read one by
one, by Java's rules: Integer.valueOf and Long.valueOf take a sign and digits, Double.valueOf also
spaces around the number, exponents, hexadecimal numbers, NaN, Infinity and a trailing d or f.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import copy_slices, gather_rows
from ..constants import PROPERTY_END

Bools = NDArray[np.bool_]

_MOST_DIGITS: Final = 15
"""Any number of so many digits, and any power of ten up to it, is exact as a double: so is then
the quotient of two of them as near as a double can be."""
_POWERS: Final = 10.0 ** np.arange(_MOST_DIGITS + 1)
_SIGN_BIT: Final = np.int64((1 << 63) - 1)
_NOT_A_NUMBER: Final = np.float64(np.nan)
_WHOLE: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(
    r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_FEW_TEXTS: Final = 8
"""So many are compared one after the other; more are looked up row by row."""
_END: Final = bytes((PROPERTY_END,))
"""A text never has this byte."""
_JAVA_SPACE: Final = "".join(map(chr, range(0x21)))


class Numbers(NamedTuple):
    """`values` [n], and which of them could be read; the others are 0."""

    values: NDArray[np.int64]
    valid: Bools


class TextColumn(NamedTuple):
    """data u1[...]; starts, lengths i8[n], -1 and 0 where there is no text."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def present(self) -> Bools:
        return self.starts >= 0

    def text(self, row: int) -> str:
        """Bytes that are not UTF-8 are U+FFFD, as RocketMQ reads them."""
        start = int(self.starts[row])
        piece = self.data[start : start + int(self.lengths[row])]
        return piece.tobytes().decode("utf-8", "replace")

    def equal_to(self, text: str) -> Bools:
        """bool[n]: which are this text; not those that are absent."""
        encoded = text.encode("utf-8", "surrogatepass")
        return self._matching(text, self.lengths == len(encoded), self.starts, encoded, str.__eq__)

    def starting_with(self, text: str) -> Bools:
        encoded = text.encode("utf-8", "surrogatepass")
        long = self.lengths >= len(encoded)
        return self._matching(text, long, self.starts, encoded, str.startswith)

    def ending_with(self, text: str) -> Bools:
        encoded = text.encode("utf-8", "surrogatepass")
        long = self.lengths >= len(encoded)
        at = self.starts + self.lengths - len(encoded)
        return self._matching(text, long, at, encoded, str.endswith)

    def starting_and_ending_with(self, first: str, last: str) -> Bools:
        """bool[n]: which do both, with different characters."""
        if _is_replaced(first + last):
            least = len(first) + len(last)
            return self.each(
                lambda mine: len(mine) >= least and mine.startswith(first) and mine.endswith(last)
            )
        result = self.lengths >= len(first.encode()) + len(last.encode())
        for text, test in ((first, self.starting_with), (last, self.ending_with)):
            if text:
                result &= test(text)
        return result & self.present

    def containing(self, text: str) -> Bools:
        """bool[n]; `text` is not empty."""
        if _is_replaced(text):
            return self.each(lambda mine: text in mine)
        encoded = text.encode("utf-8", "surrogatepass")
        result = np.zeros(len(self.starts), np.bool_)
        rows = np.flatnonzero(self.present & (self.lengths >= len(encoded)))
        if len(rows) and _END not in encoded:
            result[rows[self._rows_with(encoded, rows)]] = True
        return result

    def _rows_with(self, encoded: bytes, rows: NDArray[np.int64]) -> list[int]:
        """Which of `rows` have these bytes. Their texts are searched as one, each with an _END
        behind it, so that a row without a hit costs no statement."""
        ends = np.cumsum(self.lengths[rows] + 1)
        joined = np.full(int(ends[-1]), _END[0], np.uint8)
        lengths = self.lengths[rows]
        copy_slices(self.data, self.starts[rows], joined, ends - lengths - 1, lengths)
        text, bounds = joined.tobytes(), ends.tolist()
        found: list[int] = []
        place = text.find(encoded)
        while place >= 0:
            found.append(bisect_right(bounds, place))
            place = text.find(encoded, bounds[found[-1]])
        return found

    def one_of(self, texts: Collection[str]) -> Bools:
        result = np.zeros(len(self.starts), np.bool_)
        of_length: dict[int, list[bytes]] = {}
        for text in texts:
            if _is_replaced(text):
                result |= self.equal_to(text)
            else:
                encoded = text.encode()
                of_length.setdefault(len(encoded), []).append(encoded)
        for length, wanted in of_length.items():
            rows = np.flatnonzero(self.present & (self.lengths == length))
            if length and len(rows):
                texts_of_rows = gather_rows(self.data, self.starts[rows], length)
                result[rows] = _among(texts_of_rows, wanted)
        return result

    def equal_to_each(self, other: "TextColumn") -> Bools:
        """bool[n]: where both are there and the same text."""
        both = self.present & other.present
        result = np.zeros(len(self.starts), np.bool_)
        for row in np.flatnonzero(both).tolist():
            result[row] = self.text(row) == other.text(row)
        return result

    def each(self, test: Callable[[str], bool]) -> Bools:
        """bool[n]: the test for each text that is there, one by one."""
        result = np.zeros(len(self.starts), np.bool_)
        for row in np.flatnonzero(self.present).tolist():
            result[row] = test(self.text(row))
        return result

    def is_true(self) -> Bools:
        """Java's Boolean.valueOf: "true" in any case."""
        result = np.zeros(len(self.starts), np.bool_)
        for row in np.flatnonzero(self.lengths == len("true")).tolist():
            result[row] = self.text(row).lower() == "true"
        return result

    def whole_numbers(self, bits: int) -> Numbers:
        """As Java's Integer.valueOf (32 bits) or Long.valueOf (64)."""
        most = (1 << bits - 1) - 1
        values, valid = np.zeros(len(self.starts), np.int64), np.zeros(len(self.starts), np.bool_)
        slow = self.lengths > _MOST_DIGITS
        for rows, columns in self._of_each_length():
            mantissa, negative, plain, points = _digits(columns)
            plain &= points < 0
            values[rows] = np.where(negative, -mantissa, mantissa)
            valid[rows] = plain
            slow[rows[~plain]] = True
        for row in np.flatnonzero(slow).tolist():
            number = java_whole(self.text(row), most)
            valid[row] = number is not None
            values[row] = number or 0
        valid &= (values <= most) & (values >= -most - 1)
        return Numbers(np.where(valid, values, 0), valid)

    def doubles(self) -> Numbers:
        """As Java's Double.valueOf, as keys that have the order of Double.compareTo."""
        values, valid = np.zeros(len(self.starts)), np.zeros(len(self.starts), np.bool_)
        slow = self.lengths > _MOST_DIGITS
        for rows, columns in self._of_each_length():
            mantissa, negative, plain, points = _digits(columns)
            quotient = mantissa / _POWERS[np.maximum(points, 0)]
            values[rows] = np.where(negative, -quotient, quotient)
            valid[rows] = plain
            slow[rows[~plain]] = True
        for row in np.flatnonzero(slow).tolist():
            number = java_double(self.text(row))
            valid[row] = number is not None
            values[row] = 0.0 if number is None else number
        return Numbers(order_keys(values), valid)

    def _of_each_length(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
        """Rows with texts of one length, up to _MOST_DIGITS, and their bytes u1[length, rows]."""
        short = np.where(self.lengths <= _MOST_DIGITS, self.lengths, 0)
        counts = np.bincount(short, minlength=_MOST_DIGITS + 1)
        for length in np.flatnonzero(counts[1:]).tolist():
            rows = np.flatnonzero(self.lengths == length + 1)
            yield (
                rows,
                np.ascontiguousarray(gather_rows(self.data, self.starts[rows], length + 1).T),
            )

    def _matching(
        self,
        text: str,
        long: Bools,
        starts: NDArray[np.int64],
        encoded: bytes,
        test: Callable[[str, str], bool],
    ) -> Bools:
        """Which have these bytes at `starts`, of those that are `long` enough."""
        if _is_replaced(text):
            return self.each(lambda mine: test(mine, text))
        result = long & self.present
        if not encoded:
            return result
        rows = np.flatnonzero(result)
        wanted = np.frombuffer(encoded, np.uint8)
        result[rows] = (gather_rows(self.data, starts[rows], len(wanted)) == wanted).all(axis=1)
        return result


def java_whole(text: str, most: int) -> int | None:
    """What Integer.valueOf or Long.valueOf makes of a text, by its largest number; None for a
    NumberFormatException. Java looks at UTF-16, and knows no digit that takes two units."""
    if not _WHOLE.fullmatch(text) or max(text) > "\uffff":
        return None
    number = 0
    for digit in text.lstrip("+-"):  # int() refuses long texts, those of zeros too
        number = number * 10 + int(digit)
        if number > most + 1:
            return None
    number = -number if text[0] == "-" else number
    return number if number <= most else None


def java_double(text: str) -> float | None:
    """What Double.valueOf makes of a text; None for a NumberFormatException."""
    trimmed = text.strip(_JAVA_SPACE)
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD") if trimmed[-1:] in "fFdD" else trimmed)
    hexadecimal = _HEXADECIMAL.fullmatch(trimmed)
    if hexadecimal is None:
        return None
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return float("-inf") if trimmed.startswith("-") else float("inf")


def order_keys(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers in the order of Double.compareTo: -0.0 below 0.0, and NaN above all."""
    bits = np.where(np.isnan(values), _NOT_A_NUMBER, values).view(np.int64)
    keys: NDArray[np.int64] = bits ^ ((bits >> 63) & _SIGN_BIT)
    return keys


def _digits(
    columns: NDArray[np.uint8],
) -> tuple[NDArray[np.int64], Bools, Bools, NDArray[np.int64]]:
    """Texts of one length, u1[length, n], read as sign, digits and at most one point: the digits
    as a number, whether it is negative, whether it is written so, and how many digits stand behind
    the point, -1 without one."""
    length, count = columns.shape
    negative = columns[0] == ord("-")
    signed = negative | (columns[0] == ord("+"))
    numbers = columns - np.uint8(ord("0"))
    is_digit = numbers <= 9
    mantissa = np.zeros(count, np.int64)
    points = np.full(count, -1, np.int64)
    digits = np.zeros(count, np.int64)
    plain = np.ones(count, np.bool_)
    for index in range(length):
        digit = is_digit[index]
        if digit.all():
            mantissa = mantissa * 10 + numbers[index]
            digits += 1
            continue
        mantissa = np.where(digit, mantissa * 10 + numbers[index], mantissa)
        digits += digit
        is_point = columns[index] == ord(".")
        plain &= digit | (is_point & (points < 0)) | (signed if index == 0 else False)
        points = np.where(is_point, length - index - 1, points)
    return mantissa, negative, plain & (digits > 0), points


def _among(texts: NDArray[np.uint8], wanted: Sequence[bytes]) -> Bools:
    """Which rows of u1[n, length] are one of `wanted`, all of that length."""
    if len(wanted) > _FEW_TEXTS:
        known = frozenset(wanted)
        rows = texts.view(f"V{texts.shape[1]}").reshape(-1).tolist()
        return np.fromiter(map(known.__contains__, rows), np.bool_, len(texts))
    result = np.zeros(len(texts), np.bool_)
    for each in wanted:
        result |= (texts == np.frombuffer(each, np.uint8)).all(axis=1)
    return result


def _is_replaced(text: str) -> bool:
    """Whether a text has a U+FFFD, for which bytes that are not UTF-8 may stand, or surrogates."""
    return any(character == "\ufffd" or "\ud800" <= character <= "\udfff" for character in text)

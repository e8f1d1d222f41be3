"""Java's String.hashCode of many strings at once.

    h("abc") = a·31^2 + b·31 + c      mod 2^32

Strings are padded with zero bytes to rows of one width w; a row's product with the powers
31^(w-1) ... 31, 1 is then h · 31^(w - length). 31 is odd and has an inverse mod 2^32, so one
multiplication takes the surplus power away.

A hash continues: h(a + b) = h(a) · 31^length(b) + h(b). So a string is hashed once, however
many texts it ends (a tag: by itself, and in `topic#T#tag`).

All this is for ASCII, where a byte is a UTF-16 unit. Other strings take the plain path.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..java_hash import java_hash
from .ragged import Buffer, blank_padding, byte_array, gather_rows, padded_classes, row_numbers

_BASE: Final = 31
_INVERSE: Final = pow(_BASE, -1, 1 << 32)
_MASK: Final = 0xFFFFFFFF
_CELLS: Final = 1 << 17
_FIRST_TABLE: Final = 1024


def _powers(base: int, count: int) -> NDArray[np.uint32]:
    """base^0 ... base^(count-1) mod 2^32."""
    factors = np.full(count, base & _MASK, np.uint32)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint32)


_POWERS: Final = _powers(_BASE, _FIRST_TABLE)
_INVERSES: Final = _powers(_INVERSE, _FIRST_TABLE)


def _powers_up_to(count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Powers of 31 and of its inverse, at least `count` of each."""
    if count <= _FIRST_TABLE:
        return _POWERS, _INVERSES
    return _powers(_BASE, count), _powers(_INVERSE, count)


@dataclass(frozen=True, slots=True)
class HashedStrings:
    """Strings as they enter a longer hash: `hashes` u4[n] of the string alone, and `powers`
    u4[n], 31 to the number of its UTF-16 units."""

    hashes: NDArray[np.uint32]
    powers: NDArray[np.uint32]

    def java_hashes(self) -> NDArray[np.int32]:
        """Of the strings alone."""
        return self.hashes.view(np.int32)

    def continued(self, seeds: NDArray[np.int32]) -> NDArray[np.int32]:
        """Of the texts that begin with something of hash seeds[i] and end in string i."""
        whole: NDArray[np.uint32] = seeds.view(np.uint32) * self.powers + self.hashes
        return whole.view(np.int32)

    def followed_by(self, text: str) -> NDArray[np.int32]:
        """Of the texts that begin with string i and end in `text`, the same for all."""
        hashed, power = _kept_hash_of(text)
        whole: NDArray[np.uint32] = self.hashes * np.uint32(power) + np.uint32(hashed)
        return whole.view(np.int32)

    def take(self, rows: NDArray[Any]) -> "HashedStrings":
        """Those of the given rows (indexes or a mask)."""
        return HashedStrings(self.hashes[rows], self.powers[rows])


def hash_strings(
    buffer: Buffer, starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> HashedStrings:
    """Hashes the UTF-8 strings buffer[start : start + length]; if the bytes are not UTF-8,
    as if U+FFFD stood there."""
    data = byte_array(buffer)
    count = len(starts)
    result = HashedStrings(np.zeros(count, np.uint32), np.ones(count, np.uint32))
    for rows, width, equal in padded_classes(lengths, _CELLS):
        powers, inverses = _powers_up_to(width + 1)
        mine = lengths[rows]
        text = gather_rows(data, starts[rows], width)
        if not equal:
            text = blank_padding(text, mine)
        products = hash_rows(text.astype(np.uint32))
        result.hashes[rows] = products if equal else products * inverses[width - mine]
        result.powers[rows] = powers[width] if equal else powers[mine]
        if int(np.maximum.reduce(text, axis=None)) >= 0x80:
            _hash_plainly(result, text, mine, row_numbers(rows, count))
    return result


def hash_texts(texts: Sequence[str]) -> HashedStrings:
    """The same of a few texts, for which a loop is cheaper; no lone surrogates."""
    known = [_kept_hash_of(text) for text in texts]
    both = np.array(known, np.uint32).reshape(-1, 2)
    return HashedStrings(both[:, 0].copy(), both[:, 1].copy())


def _hash_of(text: str) -> tuple[int, int]:
    """Its hash as an unsigned number, and the power of its length."""
    units = len(text) + sum(character > "\uffff" for character in text)
    return java_hash(text) & _MASK, pow(_BASE, units, 1 << 32)


# for names that come again; texts of records are not kept
_kept_hash_of = lru_cache(maxsize=1024)(_hash_of)


def hash_rows(text: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The hashes, u4[n], of ASCII strings that are all as long as the rows of u4[n, width]."""
    width = text.shape[1]
    weights = _kept_weights(width) if width <= _KEPT_WIDTH else _weights(width)
    hashes: NDArray[np.uint32] = np.einsum("ij,j->i", text, weights)
    return hashes


def _weights(width: int) -> NDArray[np.uint32]:
    return _powers_up_to(width)[0][width - 1 :: -1].copy()


_KEPT_WIDTH: Final = 256
_kept_weights = lru_cache(maxsize=_KEPT_WIDTH)(_weights)


def powers_of(lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """31 to each length, the powers of ASCII strings, in an array of the same shape."""
    longest = int(np.maximum.reduce(lengths, axis=None, initial=0))
    return _powers_up_to(longest + 1)[0].take(lengths)


def _hash_plainly(
    result: HashedStrings,
    text: NDArray[np.uint8],
    lengths: NDArray[np.int64],
    numbers: NDArray[np.int64],
) -> None:
    """Puts the rows that are not ASCII right."""
    for row in np.flatnonzero((text >= 0x80).any(axis=1)).tolist():
        string = text[row, : lengths[row]].tobytes().decode("utf-8", "replace")
        number = numbers[row]
        result.hashes[number], result.powers[number] = _hash_of(string)


def java_hashes(
    buffer: Buffer,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    seeds: NDArray[np.int32] | None = None,
) -> NDArray[np.int32]:
    """i4[n]: String.hashCode of each UTF-8 string; with `seeds` that of the text which begins
    with something of hash seeds[i] and ends in string i."""
    hashed = hash_strings(buffer, starts, lengths)
    return hashed.java_hashes() if seeds is None else hashed.continued(seeds)

"""LIKE: the parts of a pattern between its %, each taken where it comes first.

    'e%a_t%t'   parts  e   a_t   t       first at the start, last at the end, others in between
    "eastast"          e   ast   t

A text may have 32 KB, and a pattern 8,192 characters, so no step of Python is spent on a character
of the text. A part without _ is searched by str.find. One with _ between its characters is
compared at all places of the text at once, with a bit of a long integer for each place:

    text        a b a c a        places of a  1 0 1 0 1
    part        a _ a            places of a, two further on   1 0 1
                                 both         1 0 1            found at 0 and 2
"""

import numpy as np

Part = tuple[str | None, ...]
"""Characters; None stands for any one."""


class LikePattern:
    """See the module. `parts` come in this order, with anything between two of them."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        first, *middle = (_Part(part) for part in parts)
        self._first = first
        self._last = middle.pop() if middle else None
        self._middle = middle

    def fits(self, text: str) -> bool:
        first, last = self._first, self._last
        if last is None:
            return len(text) == first.length and first.is_at(text, 0)
        end = len(text) - last.length
        if end < first.length or not (first.is_at(text, 0) and last.is_at(text, end)):
            return False
        position = first.length
        for part in self._middle:
            position = part.find(text, position, end)
            if position < 0:
                return False
            position += part.length
        return True


class _Part:
    """`pieces`: texts without _, and where each begins in the part."""

    def __init__(self, part: Part) -> None:
        self.length = len(part)
        self._characters = [(at, each) for at, each in enumerate(part) if each is not None]
        self._pieces: list[tuple[int, str]] = []
        end = -1
        for at, character in self._characters:
            if at == end:
                start, piece = self._pieces.pop()
                self._pieces.append((start, piece + character))
            else:
                self._pieces.append((at, character))
            end = at + 1
        self._longest = max(self._pieces, key=lambda each: len(each[1]), default=(0, ""))

    def is_at(self, text: str, position: int) -> bool:
        return all(text.startswith(piece, position + at) for at, piece in self._pieces)

    def find(self, text: str, begin: int, end: int) -> int:
        """Where it comes first, whole between `begin` and `end`; -1 if nowhere."""
        if begin + self.length > end:
            return -1
        at, longest = self._longest
        found = text.find(longest, begin + at, end - (self.length - at - len(longest)))
        if found < 0 or len(self._pieces) <= 1:
            return found - at if found >= 0 else -1
        return self._find_by_bits(text[found - at : end], found - at)

    def _find_by_bits(self, text: str, begin: int) -> int:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        places_of: dict[str, int] = {}
        found = (1 << len(text) - self.length + 1) - 1
        for at, character in self._characters:
            places = places_of.get(character)
            if places is None:
                places = places_of[character] = _bits(codes, character)
            found &= places >> at
            if not found:
                return -1
        return begin + (found & -found).bit_length() - 1


def _bits(codes: np.ndarray[tuple[int], np.dtype[np.uint32]], character: str) -> int:
    """Bit i: whether the text has the character in place i."""
    packed = np.packbits(codes == np.uint32(ord(character)), bitorder="little")
    return int.from_bytes(packed.tobytes(), "little")

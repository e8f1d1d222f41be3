"""Many byte strings as one buffer and the places where they begin, as Arrow keeps them.

data      a b c d e f g h i
offsets   0     3   3     ...        string i is data[offsets[i] : offsets[i + 1]]
valid     T     T   F                None: all are there
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .ragged import Buffer, byte_array, offsets_of


@dataclass(frozen=True, slots=True)
class ByteColumn:
    """n strings. data u1[...], offsets i8[n + 1] ascending, valid bool[n] or None.

    A string that is not valid counts as empty and absent, whatever its offsets say.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    valid: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, values: Iterable[bytes | str | None]) -> "ByteColumn":
        """A column of the given strings, text as UTF-8; None is not valid."""
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        lengths = np.fromiter((len(each or b"") for each in encoded), np.int64, len(encoded))
        valid = None
        if None in encoded:
            valid = np.fromiter((each is not None for each in encoded), np.bool_, len(encoded))
        data = np.frombuffer(b"".join(each or b"" for each in encoded), np.uint8)
        return cls(data, offsets_of(lengths), valid)

    @classmethod
    def of_equal_lengths(cls, data: Buffer, length: int) -> "ByteColumn":
        """A column of strings of `length` bytes each, end to end in `data`."""
        array = byte_array(data)
        return cls(array, np.arange(0, len(array) + 1, length))

    @classmethod
    def of_lengths(cls, data: Buffer, lengths: NDArray[np.int64]) -> "ByteColumn":
        """A column of strings of these lengths, end to end in `data`."""
        return cls(byte_array(data), offsets_of(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def starts(self) -> NDArray[np.int64]:
        return self.offsets[:-1]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each; 0 if not valid."""
        lengths = self.offsets[1:] - self.offsets[:-1]
        return lengths if self.valid is None else lengths * self.valid

    def rows(self, start: int, stop: int) -> "ByteColumn":
        """Strings start .. stop-1, of the same data."""
        valid = None if self.valid is None else self.valid[start:stop]
        return ByteColumn(self.data, self.offsets[start : stop + 1], valid)

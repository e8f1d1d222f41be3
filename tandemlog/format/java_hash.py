"""Java's `String.hashCode`: h = 31·h + c over the UTF-16 code units, wrapped to signed 32 bits.

Queue units (tags) and index entries (keys) hold such hashes, so a text outside the basic plane
counts as two units, and a lone surrogate as the unit that it is.
"""


def java_hash(text: str) -> int:
    """The hash of `text`, -2**31 to 2**31-1; 0 for an empty text."""
    return java_hash_continued(0, text)


def java_hash_continued(start: int, text: str) -> int:
    """The hash of a longer text whose beginning hashes to `start` and whose rest is `text`."""
    value = start & 0xFFFFFFFF
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (value * 31 + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value

"""What can be wrong with bytes: every error names the thing, the position and the reason."""


class FormatError(ValueError):
    """Bytes that do not have the form they should have."""


class CorruptRecordError(FormatError):
    """A commit-log record that cannot be taken as one.

    `offset` is its position in the log (or in the buffer, where the log position is unknown),
    `field` the part that is wrong (magic, size, body_crc, physical_offset, ...).
    """

    def __init__(self, offset: int, field: str, reason: str) -> None:
        super().__init__(f"record at {offset}: {field}: {reason}")
        self.offset = offset
        self.field = field
        self.reason = reason


class RecordTooLargeError(FormatError):
    """A part of a message above its limit; `field` is body, properties, topic or record."""

    def __init__(self, field: str, actual: int, limit: int) -> None:
        super().__init__(f"{field} has {actual} bytes, the limit is {limit}")
        self.field = field
        self.actual = actual
        self.limit = limit

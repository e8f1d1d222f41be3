"""Times and durations of a request in ms. A client may send any numbers in them; the library's own
conversions raise errors for those that are no date."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def milliseconds(value: Timestamp | Duration) -> int:
    """Rounded down."""
    return value.seconds * 1_000 + value.nanos // 1_000_000

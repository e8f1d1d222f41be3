"""The Arrow types of messages that have no short name in Arrow."""

import pyarrow as pa

STRING_MAP = pa.map_(pa.string(), pa.string())

"""Arrow, which is loaded when columns are first asked for: most programs read messages.

pyarrow is an optional dependency (`pip install 'tandemlog[arrow]'`).
"""

import importlib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

    from ...arrow.received_arrow import Received


def schema_of(columns: Sequence[str] | None) -> "pa.Schema":
    """The schema of the given columns. Raises InvalidArgumentError for a column that does not
    exist, and without the extra `arrow`."""
    return _module("message_schema").message_schema(columns)


def as_arrow(batches: Sequence["Received"], schema: "pa.Schema") -> "pa.RecordBatch":
    """All messages of `batches`, in their order. Raises BadRecordError."""
    return _module("received_arrow").columns_of(batches, schema)


@cache
def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"...arrow.{name}", __package__)
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "pyarrow"):
            raise
        raise InvalidArgumentError(
            f"columns need {error.name}, which is not installed: pip install 'tandemlog[arrow]'",
            field="columns",
        ) from None

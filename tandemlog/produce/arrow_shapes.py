"""What is used of Arrow, recognised by its shape: a program without pyarrow need not install it."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ArrowArray(Protocol):
    """What is used of a pyarrow.Array."""

    @property
    def type(self) -> Any: ...
    @property
    def offset(self) -> int: ...
    @property
    def null_count(self) -> int: ...
    def buffers(self) -> list[Any]: ...
    def __len__(self) -> int: ...


@runtime_checkable
class ArrowChunks(Protocol):
    """What is used of a pyarrow.ChunkedArray."""

    @property
    def chunks(self) -> list[Any]: ...
    def combine_chunks(self) -> Any: ...


@runtime_checkable
class ArrowTable(Protocol):
    """What is used of a pyarrow.Table or RecordBatch."""

    @property
    def column_names(self) -> list[str]: ...
    def column(self, i: str) -> Any: ...


def is_arrow(values: object) -> bool:
    """Whether it is a column or a table of Arrow."""
    return isinstance(values, ArrowArray | ArrowChunks | ArrowTable)

"""The section [archive] of a node's settings."""

from typing import Annotated

from annotated_types import Ge, Gt
from pydantic import Field

from .sections import Section


class ArchiveSection(Section):
    """A copy of the log outside the cluster: docs/archive.md."""

    url: Annotated[str, Field(repr=False)] = ""
    """Where the log is archived: a folder, file:///…, or what fsspec knows (s3://…, gs://…,
    hdfs://…; needs tandemlog[archive] and fsspec's package for it). The same on all nodes of the
    cluster; empty means no archive."""
    interval_ms: Annotated[int, Ge(100)] = 5_000
    """How far the archive is behind what is confirmed, at most, while it keeps up."""
    bytes_per_s: Annotated[int, Ge(0)] = 100_000_000
    """Bound on what the archiver puts; 0 means none."""
    segment_bytes: Annotated[int, Ge(1 << 20), Gt(0)] = 64 << 20
    """Of the largest object; the archiver takes about three times as much memory."""
    hold_bytes: Annotated[int, Ge(0)] = 32 << 30
    """How much of the log retention keeps for an archive that is behind. Above it, log files are
    deleted as without an archive, and are missing in it."""
    cold_reads: bool = False
    """Whether messages that retention has deleted from the log are read from the archive. A reader
    that starts at the earliest message then starts with the archive's first one. The same on all
    nodes of the cluster."""
    cold_cache_bytes: Annotated[int, Ge(1 << 20)] = 256 << 20
    """Memory for what was read of the archive last."""

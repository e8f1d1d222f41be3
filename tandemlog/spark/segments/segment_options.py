"""The options of the segment source, read once and checked before anything runs.

Spark passes them as text under lower-case names; here they get their types. An unknown option is an
error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from tandemlog.logs.job_errors import OnCorruption, OptionError

from ..cluster.kafka_names import kafka_fault
from ..cluster.live_options import CONNECTING

_TARGET_BYTES = 256 << 20
"""A task of rows costs some 70 ms of CPU time beside its rows, which take ten times that here."""
_BLOCK_BYTES = 1 << 20
_E = TypeVar("_E", bound=StrEnum)


class View(StrEnum):
    """What the rows of the source are."""

    MESSAGES = "messages"
    RAW = "raw"
    ENTRIES = "entries"
    INDEX = "index"
    AUDIT = "audit"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """Where the log is (`path` or `endpoint`), what of it, and in which form.

    from_offset, to_offset   log offsets; records that begin in from .. to (to 0: the log's end)
    target_bytes             about so many bytes of the log a task
    min_partitions           so many tasks, if there is enough to read; None: the machine's cores
    columns                  None: all of the view's
    block_bytes              of the view `blocks`
    connecting               how the endpoint is reached: settings of tandemlog/cluster/profiles.py
    """

    path: str | None = None
    endpoint: str | None = None
    view: View = View.MESSAGES
    columns: tuple[str, ...] | None = None
    target_bytes: int = _TARGET_BYTES
    min_partitions: int | None = None
    from_offset: int = 0
    to_offset: int = 0
    on_corruption: OnCorruption = OnCorruption.FAIL
    verify_crc: bool = True
    index_tags: bool = True
    block_bytes: int = _BLOCK_BYTES
    fetch_timeout_ms: int = 30_000
    connecting: tuple[tuple[str, str], ...] = field(default=(), repr=False)


# Lower-case name as Spark hands it over -> as users write it.
_NAMES = {
    name.lower(): name
    for name in (
        *CONNECTING,
        "path",
        "dir",
        "endpoint",
        "view",
        "columns",
        "targetBytes",
        "minPartitions",
        "fromOffset",
        "toOffset",
        "onCorruption",
        "verifyCrc",
        "indexTags",
        "blockBytes",
        "fetchTimeoutMs",
    )
}
PLACES = frozenset({"path", "dir", "endpoint", "cluster", "kafka.bootstrap.servers"})
"""The options that say which log, in lower case."""
_ALL = "tandemlog_segments reads all topics of a log"
_OFFSETS = (
    f"{_ALL}: filter by the columns topic, queue_offset and store_timestamp; fromOffset and "
    "toOffset are positions in the log, in bytes"
)
_TOPICS = f"{_ALL}: filter by the column topic"
_STREAMS = "tandemlog_segments reads a log once: format tandemlog has streams"
_ELSEWHERE = {
    "subscribe": _TOPICS,
    "subscribepattern": _TOPICS,
    "topic": _TOPICS,
    "topics": _TOPICS,
    "topicspattern": _TOPICS,
    "assign": f"{_ALL}: filter by the columns topic and queue_id",
    "startingoffsets": _OFFSETS,
    "endingoffsets": _OFFSETS,
    "startingtimestamp": _OFFSETS,
    "endingtimestamp": _OFFSETS,
    "startingoffsetsbytimestamp": _OFFSETS,
    "endingoffsetsbytimestamp": _OFFSETS,
    "maxoffsetspertrigger": _STREAMS,
    "minoffsetspertrigger": _STREAMS,
    "maxrecordsperpartition": "the option here is targetBytes, the size of the log for one task",
    "failondataloss": "the option here is onCorruption: fail, skip or report",
}
"""Options of format tandemlog and of Kafka's source, and what does their work here."""
_SUFFIXES = {"k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30}


def parse_segment_options(options: Mapping[str, str]) -> SegmentOptions:
    """Raises OptionError naming the option, its value and what is allowed."""
    given = {name.lower(): value for name, value in options.items()}
    if "kafka.bootstrap.servers" in given:
        if "endpoint" in given:
            raise OptionError("option endpoint is given twice")
        given["endpoint"] = given.pop("kafka.bootstrap.servers")
    unknown = sorted(set(given) - set(_NAMES))
    if unknown:
        if unknown[0] in _ELSEWHERE:
            raise OptionError(
                f"option {unknown[0]} is not one of tandemlog_segments: {_ELSEWHERE[unknown[0]]}"
            )
        fault = kafka_fault(unknown[0])
        if fault is not None:
            raise OptionError(fault)
        raise OptionError(
            f"unknown option {unknown[0]!r} of tandemlog_segments; "
            f"there are: {', '.join(_NAMES.values())}"
        )
    # A table of Spark's may have a path that Spark chose, so it has a second name.
    path = given.get("dir") or given.get("path") or None
    endpoint = given.get("endpoint") or None
    connecting = tuple(
        (setting, given[name.lower()])
        for name, setting in CONNECTING.items()
        if given.get(name.lower())
    )
    if endpoint is None and path is None and "cluster" in dict(connecting):
        endpoint = ""  # that of the profile
    if (path is None) == (endpoint is None):
        raise OptionError("give either path (a store or its commitlog folder) or endpoint")
    options_read = SegmentOptions(
        path=path,
        endpoint=endpoint,
        view=_choice(given, "view", View, View.MESSAGES),
        columns=_columns(given),
        target_bytes=_size(given, "targetBytes", _TARGET_BYTES, least=1),
        min_partitions=_size(given, "minPartitions", 0) or None,
        from_offset=_size(given, "fromOffset", 0),
        to_offset=_size(given, "toOffset", 0),
        on_corruption=_choice(given, "onCorruption", OnCorruption, OnCorruption.FAIL),
        verify_crc=_flag(given, "verifyCrc", True),
        index_tags=_flag(given, "indexTags", True),
        block_bytes=_size(given, "blockBytes", _BLOCK_BYTES, least=4096),
        connecting=connecting,
        fetch_timeout_ms=_size(given, "fetchTimeoutMs", 30_000, least=1),
    )
    if options_read.to_offset and options_read.to_offset < options_read.from_offset:
        raise OptionError(
            f"option toOffset: {options_read.to_offset} is below fromOffset "
            f"{options_read.from_offset}"
        )
    return options_read


def _columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    text = given.get("columns")
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _choice(given: Mapping[str, str], name: str, kind: type[_E], default: _E) -> _E:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        return kind(text.strip().lower())
    except ValueError:
        allowed = ", ".join(each.value for each in kind)
        raise OptionError(f"option {name}: {text!r} is none of {allowed}") from None


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name}: {text!r} is neither true nor false")
    return text.strip().lower() == "true"


def _size(given: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    """A whole number, with k, m or g for its powers of 1,024."""
    text = given.get(name.lower())
    if text is None:
        return default
    digits = text.strip().lower()
    shift = 0
    for suffix, bits in sorted(_SUFFIXES.items(), key=lambda each: -len(each[0])):
        if digits.endswith(suffix):
            digits, shift = digits.removesuffix(suffix).strip(), bits
            break
    if not (digits.isascii() and digits.isdigit()) or int(digits) << shift >= 1 << 63:
        raise OptionError(f"option {name}: {text!r} is not a whole number (with k, m or g)")
    if int(digits) << shift < least:
        raise OptionError(f"option {name}: {text} is below {least}")
    return int(digits) << shift

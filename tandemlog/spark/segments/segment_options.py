"""The options of the segment source, parsed once and checked before anything runs.

Spark passes them as text under lower-case names. An unknown option is an error.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from tandemlog.logs.job_errors import OnCorruption, OptionError
from tandemlog.logs.reading.selection import Selection

from ..cluster import option_values as values
from ..cluster.kafka_names import kafka_fault
from ..cluster.live_options import CONNECTING

_TARGET_BYTES = 256 << 20
"""A task of rows costs some 70 ms of CPU time beside its rows, which take ten times that here."""
_BLOCK_BYTES = 1 << 20
_MOST: Final = (1 << 63) - 1


class View(StrEnum):
    """What the rows of the source are."""

    MESSAGES = "messages"
    RAW = "raw"
    ENTRIES = "entries"
    INDEX = "index"
    AUDIT = "audit"
    BLOCKS = "blocks"


OF_RECORDS: Final = (View.MESSAGES, View.RAW, View.ENTRIES, View.INDEX)


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """Where the log is (`path` or `endpoint`), what of it, and in which form.

    selection                topics and store times; of an archive, the rest is not even fetched
    from_offset, to_offset   log offsets; records that begin in from .. to (to 0: the log's end)
    target_bytes             about so many bytes of the log a task
    min_partitions           so many tasks, if there is enough to read; 0: the machine's cores
    columns                  None: all of the view's
    block_bytes              of the view `blocks`
    connecting               how the endpoint is reached: settings of tandemlog/cluster/profiles.py
    storage                  options of fsspec's file system, where the path is an archive's URL
    """

    path: str | None = None
    endpoint: str | None = None
    view: View = View.MESSAGES
    columns: tuple[str, ...] | None = None
    target_bytes: int = _TARGET_BYTES
    min_partitions: int = 0
    from_offset: int = 0
    to_offset: int = 0
    on_corruption: OnCorruption = OnCorruption.FAIL
    verify_crc: bool = True
    index_tags: bool = True
    block_bytes: int = _BLOCK_BYTES
    fetch_timeout_ms: int = 30_000
    selection: Selection = field(default_factory=Selection)
    connecting: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)


def storage_options(text: str) -> Mapping[str, Any]:
    """A JSON object. Raises ValueError that shows nothing of it: there are secrets in it."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError('must be a JSON object, such as {"anon": true}')
    return value


_PARSED: Final = {
    "view": ("view", values.one_of(View)),
    "targetBytes": ("target_bytes", values.size(1, _MOST)),
    "minPartitions": ("min_partitions", values.size(0, _MOST)),
    "fromOffset": ("from_offset", values.size(0, _MOST)),
    "toOffset": ("to_offset", values.size(0, _MOST)),
    "onCorruption": ("on_corruption", values.one_of(OnCorruption)),
    "verifyCrc": ("verify_crc", values.boolean),
    "indexTags": ("index_tags", values.boolean),
    "blockBytes": ("block_bytes", values.size(4096, _MOST)),
    "fetchTimeoutMs": ("fetch_timeout_ms", values.size(1, _MOST)),
}
_CHOSEN: Final = {
    "topic": ("topics", values.topics),
    "startingTimestamp": ("since_ms", values.whole(0)),
    "endingTimestamp": ("before_ms", values.whole(1)),
}
"""Option -> field of Selection, and what parses it."""
STORAGE: Final = "storageOptions"
"""Option -> field of SegmentOptions, and what parses it."""
_NAMES: Final = {
    name.lower(): name
    for name in (*CONNECTING, "path", "dir", "endpoint", "columns", STORAGE, *_CHOSEN, *_PARSED)
}
"""Lower-case name as Spark passes it -> as users write it."""
PLACES = frozenset({"path", "dir", "endpoint", "cluster", "kafka.bootstrap.servers"})
"""The options that say which log, in lower case."""
_ALL = "tandemlog_segments reads all topics of a log"
_OFFSETS = (
    f"{_ALL}: filter by the columns topic, queue_offset and store_timestamp; fromOffset and "
    "toOffset are positions in the log, in bytes"
)
_TIMES = f"{_ALL}: startingTimestamp and endingTimestamp are store times of all of them"
_TOPICS = (
    f"{_ALL}: the option topic chooses some, separated by commas, or filter by the column topic"
)
_STREAMS = "tandemlog_segments reads a log once: format tandemlog has streams"
_ELSEWHERE = {
    "subscribe": _TOPICS,
    "subscribepattern": _TOPICS,
    "topics": _TOPICS,
    "topicspattern": _TOPICS,
    "assign": f"{_ALL}: filter by the columns topic and queue_id",
    "startingoffsets": _OFFSETS,
    "endingoffsets": _OFFSETS,
    "startingoffsetsbytimestamp": _TIMES,
    "endingoffsetsbytimestamp": _TIMES,
    "maxoffsetspertrigger": _STREAMS,
    "minoffsetspertrigger": _STREAMS,
    "maxrecordsperpartition": "the option here is targetBytes, the size of the log for one task",
    "failondataloss": "the option here is onCorruption: fail, skip or report",
}
"""Options of format tandemlog and of Kafka's source, and what takes their place here."""


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
    parsed = {
        field: values.parsed(name, parse, given[name.lower()])
        for name, (field, parse) in _PARSED.items()
        if name.lower() in given
    }
    options_read = SegmentOptions(
        path=path,
        endpoint=endpoint,
        columns=_columns(given),
        selection=_selection(given),
        connecting=connecting,
        storage=_storage(given),
        **parsed,
    )
    if not options_read.selection.is_all and options_read.view not in OF_RECORDS:
        raise OptionError(
            f"the view {options_read.view} is of all bytes of a log: it takes no topic, "
            "startingTimestamp or endingTimestamp"
        )
    start, end = options_read.from_offset, options_read.to_offset
    if end and end < start:
        raise OptionError(f"option toOffset: {end} is below fromOffset {start}")
    return options_read


def _columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    text = given.get("columns")
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _selection(given: Mapping[str, str]) -> Selection:
    """Raises OptionError."""
    chosen = {
        field: values.parsed(name, parse, given[name.lower()])
        for name, (field, parse) in _CHOSEN.items()
        if name.lower() in given
    }
    selection = Selection(**chosen)
    if selection.before_ms < selection.since_ms:
        raise OptionError(
            f"option endingTimestamp: {selection.before_ms} is below startingTimestamp "
            f"{selection.since_ms}"
        )
    return selection


def _storage(given: Mapping[str, str]) -> Mapping[str, Any]:
    """Raises OptionError."""
    text = given.get(STORAGE.lower())
    if not text:
        return {}
    try:
        return storage_options(text)
    except ValueError as error:
        raise OptionError(f"option {STORAGE}: {error}") from None

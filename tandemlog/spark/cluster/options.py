"""The options of format("tandemlog"): names, forms, defaults; every mistake is one clear error.

Spark hands options over as text under lower-case names. Each table below maps an option to what
reads it and the field it becomes; what stands in no table is an error that names the nearest one.
Some options mean something to a batch or to a stream only, and are refused by the other.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from tandemlog.cluster.endpoints import parse_endpoints
from tandemlog.cluster.topology import ReadFrom
from tandemlog.format.constants import group_fault, topic_fault
from tandemlog.format.errors import FormatError
from tandemlog.format.record.producer_mark import MAX_PRODUCER_ID, producer_id_fault
from tandemlog.format.record.tags import parse_tags

from ..errors import OptionError
from .offsets import EARLIEST, LATEST, Position, parse_assignment, parse_offsets, parse_times

PARTITION_DIGITS: Final = 7
"""Room for `:partition` behind a name that the user gives to a writer."""


class Strategy(Enum):
    """What a starting time later than every message of a queue means."""

    ERROR = "error"
    LATEST = "latest"


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How to get at the cluster; times in ms."""

    endpoint: tuple[str, ...]
    request_timeout_ms: int = 10_000
    retry_timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Which queues are read: exactly one of the fields is set. `assigned` by topic."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits of one micro-batch: rows, bytes (about), rows to wait for and for how long (ms)."""

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_ms: int = 900_000


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How many tasks read: see offsets_plan."""

    min_partitions: int | None = None
    max_partitions: int | None = None
    max_records: int | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader was told. `tags` None: all; sizes in bytes, times in ms."""

    cluster: ClusterOptions
    selection: Selection
    start: Position | None = None
    end: Position | None = None
    time_strategy: Strategy = Strategy.ERROR
    fail_on_data_loss: bool = True
    admission: Admission = field(default_factory=Admission)
    partitioning: Partitioning = field(default_factory=Partitioning)
    columns: tuple[str, ...] | None = None
    tags: str | None = None
    read_from: ReadFrom = ReadFrom.SLAVE
    group: str | None = None
    pull_bytes: int = 8 << 20
    pull_timeout_ms: int = 30_000
    verify_crc: bool = False


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a writer was told. `topic` None: the column says it; sizes in bytes, times in ms."""

    cluster: ClusterOptions
    topic: str | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    idempotency_id: str | None = None
    idempotency_epoch: int = 0
    batch_messages: int = 4096
    batch_bytes: int = 1 << 20
    send_timeout_ms: int = 120_000
    wait: bool = True
    unique_ids: bool = True


class Use(Enum):
    """Who reads options."""

    BATCH = "a batch read"
    STREAM = "a stream"
    WRITE = "a write"


Parser = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    parse: Parser
    uses: frozenset[Use]


def read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """The options of a batch read or a stream. Raises OptionError."""
    given = _parsed(options, use)
    start = _position(given, "starting")
    end = _position(given, "ending")
    if given.get("minPartitions", 0) > given.get("maxPartitions", 1 << 62):
        raise OptionError("option minPartitions is larger than maxPartitions")
    if given.get("minOffsetsPerTrigger", 0) > given.get("maxOffsetsPerTrigger", 1 << 62):
        raise OptionError("option minOffsetsPerTrigger is larger than maxOffsetsPerTrigger")
    return ReadOptions(
        cluster=_cluster(given),
        selection=_selection(given),
        start=start,
        end=end,
        admission=Admission(
            **_renamed(
                given,
                max_rows="maxOffsetsPerTrigger",
                max_bytes="maxBytesPerTrigger",
                min_rows="minOffsetsPerTrigger",
                max_delay_ms="maxTriggerDelay",
            )
        ),
        partitioning=Partitioning(
            **_renamed(
                given,
                min_partitions="minPartitions",
                max_partitions="maxPartitions",
                max_records="maxRecordsPerPartition",
            )
        ),
        **_renamed(
            given,
            time_strategy="startingOffsetsByTimestampStrategy",
            fail_on_data_loss="failOnDataLoss",
            columns="columns",
            tags="tags",
            read_from="readFrom",
            group="groupId",
            pull_bytes="pullBytes",
            pull_timeout_ms="pullTimeoutMs",
            verify_crc="verifyCrc",
        ),
    )


def write_options(options: Mapping[str, str], *, stream: bool) -> WriteOptions:
    """The options of a writer. Raises OptionError."""
    given = _parsed(options, Use.WRITE)
    for name in ("idempotencyId", "idempotencyEpoch"):
        if stream and name in given:
            raise OptionError(
                f"option {name} is for batch writes: a stream is known by its checkpoint"
            )
    if "idempotencyEpoch" in given and "idempotencyId" not in given:
        raise OptionError("option idempotencyEpoch numbers the runs of an idempotencyId: give both")
    return WriteOptions(
        cluster=_cluster(given),
        **_renamed(
            given,
            topic="topic",
            guarantee="deliveryGuarantee",
            idempotency_id="idempotencyId",
            idempotency_epoch="idempotencyEpoch",
            batch_messages="batchMessages",
            batch_bytes="batchBytes",
            send_timeout_ms="sendTimeoutMs",
            wait="waitForCluster",
            unique_ids="uniqueIds",
        ),
    )


def chosen_columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """The option columns: all that a schema depends on. Raises OptionError, also for names that
    mean nothing to anyone: this is the first that is heard of the options."""
    for key in _lower(options):
        if key not in _SPARKS_OWN and _ALIASES.get(key, key) not in _OPTIONS:
            raise _no_option(key, None)
    text = _lower(options).get("columns")
    return None if text is None else _read(_OPTIONS["columns"], text)


def _parsed(options: Mapping[str, str], use: Use) -> dict[str, Any]:
    """Values by the option's full name."""
    given: dict[str, Any] = {}
    for key, text in _lower(options).items():
        if use is Use.WRITE and key in _SPARKS_OWN:
            continue
        option = _OPTIONS.get(_ALIASES.get(key, key))
        if option is None:
            raise _no_option(key, use)
        if use not in option.uses:
            where = " or ".join(sorted(each.value for each in option.uses))
            raise OptionError(f"option {option.name} is for {where}, not for {use.value}")
        if option.name in given:
            raise OptionError(f"option {option.name} is given twice")
        given[option.name] = _read(option, text)
    return given


def _no_option(key: str, use: Use | None) -> OptionError:
    if key in _GONE:
        return OptionError(f"option {key} does not exist any more: {_GONE[key]}")
    return OptionError(f"option {key} does not exist{_nearest(key, use)}")


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): text for key, text in options.items()}


def _read(option: _Option, text: str) -> Any:
    try:
        return option.parse(str(text))
    except (ValueError, FormatError) as error:
        raise OptionError(f"option {option.name}={text!r}: {error}") from None


def _nearest(key: str, use: Use | None) -> str:
    names = {
        name: option.name for name, option in _OPTIONS.items() if use is None or use in option.uses
    }
    close = difflib.get_close_matches(key, names, n=1)
    if close:
        return f": is {names[close[0]]} meant?"
    return f"; there are {', '.join(sorted(names.values()))}"


def _renamed(given: Mapping[str, Any], **fields: str) -> dict[str, Any]:
    return {name: given[option] for name, option in fields.items() if option in given}


def _cluster(given: Mapping[str, Any]) -> ClusterOptions:
    if "endpoint" not in given:
        raise OptionError("option endpoint is missing: name a node of the cluster as host:port")
    return ClusterOptions(
        **_renamed(
            given,
            endpoint="endpoint",
            request_timeout_ms="requestTimeoutMs",
            retry_timeout_ms="retryTimeoutMs",
        )
    )


def _selection(given: Mapping[str, Any]) -> Selection:
    named = [name for name in ("topic", "topics", "topicsPattern", "assign") if name in given]
    if len(named) != 1:
        raise OptionError(
            "exactly one of the options topic, topics, topicsPattern and assign says what is read; "
            + (f"given: {', '.join(named)}" if named else "none is given")
        )
    value = given[named[0]]
    if named[0] == "topicsPattern":
        return Selection(pattern=value)
    if named[0] == "assign":
        return Selection(assigned=value)
    return Selection(topics=value if named[0] == "topics" else (value,))


def _position(given: Mapping[str, Any], side: str) -> Position | None:
    """Of the options that say where to start (or end), the one that counts."""
    names = (f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    named = [name for name in names if name in given]
    if len(named) > 1:
        raise OptionError(f"options {' and '.join(named)} contradict each other: give one of them")
    return given[named[0]] if named else None


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _topic(text: str) -> str:
    fault = topic_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


def _topics(text: str) -> tuple[str, ...]:
    return tuple(_topic(each) for each in _names(text))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(",") if each.strip())
    if not names:
        raise ValueError("contains no name")
    return tuple(dict.fromkeys(names))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return text


def _group(text: str) -> str:
    fault = group_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


def _tags(text: str) -> str | None:
    return text if parse_tags(text) is not None else None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _whole(least: int, most: int = (1 << 63) - 1) -> Parser:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not least <= number <= most:
            raise ValueError(f"must be between {least} and {most}")
        return number

    return parse


def _size(least: int, most: int) -> Parser:
    """Bytes, with k, m or g for powers of 1,024."""
    whole = _whole(0)

    def parse(text: str) -> int:
        found = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.strip().lower())
        if found is None:
            raise ValueError("must be a number of bytes, for example 3m")
        number: int = whole(found.group(1)) << {"": 0, "k": 10, "m": 20, "g": 30}[found.group(2)]
        if not least <= number <= most:
            raise ValueError(f"must be between {least} and {most} bytes")
        return number

    return parse


_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration(text: str) -> int:
    """In ms: digits alone are ms, else with a unit."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    unit = _UNITS.get(found.group(2) or "ms") if found else None
    if found is None or unit is None:
        raise ValueError(f"must be a number and one of {', '.join(_UNITS)}, for example 15m")
    return int(found.group(1)) * unit


def _one_of(kind: type[Enum]) -> Parser:
    def parse(text: str) -> Enum:
        try:
            return kind(text.lower())
        except ValueError:
            raise ValueError(f"must be {' or '.join(each.value for each in kind)}") from None

    return parse


def _writer_name(text: str) -> str:
    fault = producer_id_fault(text)
    if fault is not None:
        raise ValueError(fault)
    if len(text) > MAX_PRODUCER_ID - PARTITION_DIGITS:
        raise ValueError(f"must not have more than {MAX_PRODUCER_ID - PARTITION_DIGITS} characters")
    return text


def _offsets_position(text: str, words: tuple[str, ...]) -> Position:
    word = text.strip().lower()
    if word in words:
        return Position(everywhere=EARLIEST if word == "earliest" else LATEST)
    if not text.lstrip().startswith("{"):
        raise ValueError(f"must be {' or '.join(words)}, or JSON like {_SAMPLE}")
    return Position(offsets=parse_offsets(json.loads(text)))


_SAMPLE: Final = '{"topic": {"0": 123, "1": -2}}'


def _starting(text: str) -> Position:
    return _offsets_position(text, ("earliest", "latest"))


def _ending(text: str) -> Position:
    position = _offsets_position(text, ("latest",))
    if EARLIEST in (position.offsets or {}).values():
        raise ValueError(f"a read cannot end at the earliest offset ({EARLIEST})")
    return position


def _at_time(text: str) -> Position:
    return Position(time=_whole(0)(text))


def _at_times(text: str) -> Position:
    return Position(times=parse_times(json.loads(text)))


_READ = frozenset({Use.BATCH, Use.STREAM})
_BATCH = frozenset({Use.BATCH})
_STREAM = frozenset({Use.STREAM})
_WRITE = frozenset({Use.WRITE})
_MOST_BYTES = 32 << 20

_OPTIONS: Final = {
    option.name.lower(): option
    for option in (
        _Option("endpoint", lambda text: parse_endpoints(text.replace(";", ",")), _READ | _WRITE),
        _Option("requestTimeoutMs", _whole(1), _READ | _WRITE),
        _Option("retryTimeoutMs", _whole(1), _READ | _WRITE),
        _Option("topic", _topic, _READ | _WRITE),
        _Option("topics", _topics, _READ),
        _Option("topicsPattern", _pattern, _READ),
        _Option("assign", lambda text: parse_assignment(json.loads(text)), _READ),
        _Option("startingOffsets", _starting, _READ),
        _Option("startingTimestamp", _at_time, _READ),
        _Option("startingOffsetsByTimestamp", _at_times, _READ),
        _Option("startingOffsetsByTimestampStrategy", _one_of(Strategy), _READ),
        _Option("endingOffsets", _ending, _BATCH),
        _Option("endingTimestamp", _at_time, _BATCH),
        _Option("endingOffsetsByTimestamp", _at_times, _BATCH),
        _Option("failOnDataLoss", _boolean, _READ),
        _Option("maxOffsetsPerTrigger", _whole(1), _STREAM),
        _Option("maxBytesPerTrigger", _size(1, 1 << 62), _STREAM),
        _Option("minOffsetsPerTrigger", _whole(1), _STREAM),
        _Option("maxTriggerDelay", _duration, _STREAM),
        _Option("minPartitions", _whole(1, 100_000), _READ),
        _Option("maxPartitions", _whole(1, 100_000), _READ),
        _Option("maxRecordsPerPartition", _whole(1), _READ),
        _Option("columns", _names, _READ),
        _Option("tags", _tags, _READ),
        _Option("readFrom", _one_of(ReadFrom), _READ),
        _Option("groupId", _group, _READ),
        _Option("pullBytes", _size(1, _MOST_BYTES), _READ),
        _Option("pullTimeoutMs", _whole(1), _READ),
        _Option("verifyCrc", _boolean, _READ),
        _Option("deliveryGuarantee", _one_of(Guarantee), _WRITE),
        _Option("idempotencyId", _writer_name, _WRITE),
        _Option("idempotencyEpoch", _whole(0, (1 << 31) - 1), _WRITE),
        _Option("batchMessages", _whole(1, 65_535), _WRITE),
        _Option("batchBytes", _size(1, _MOST_BYTES), _WRITE),
        _Option("sendTimeoutMs", _whole(1), _WRITE),
        _Option("waitForCluster", _boolean, _WRITE),
        _Option("uniqueIds", _boolean, _WRITE),
    )
}
_ALIASES: Final = {
    "endpoints": "endpoint",
    "nameservers": "endpoint",
    "subexpression": "tags",
}
_GONE: Final = {
    "pushdown": (
        "Spark 4.3 applies a filter that a source takes over to every other use of the same "
        "DataFrame too. Narrow the read by topic, assign, startingOffsets, endingOffsets and tags"
    ),
}
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""What Spark lets a stream's user set among the sink's options."""

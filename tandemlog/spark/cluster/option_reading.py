"""The options of format("tandemlog"): names, forms, defaults; every mistake is one clear error.

Spark passes options as text under lower-case names. The table below has the parser and the field of
each; an option that is not in it is an error that names the nearest one. Some options are only for
a batch or only for a stream, and the other refuses them.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from tandemlog.cluster.endpoints import parse_endpoints
from tandemlog.cluster.profiles import chosen
from tandemlog.cluster.topology import ReadFrom
from tandemlog.errors import InvalidArgumentError
from tandemlog.logs.job_errors import OptionError

from . import option_values as values
from .kafka_names import KAFKA_ALIASES, kafka_fault
from .live_options import (
    CONNECTING,
    Admission,
    ClusterOptions,
    Guarantee,
    Partitioning,
    ReadOptions,
    Selection,
    Strategy,
    Use,
    WriteOptions,
)
from .queue_offsets import Position, parse_assignment


@dataclass(frozen=True, slots=True)
class _Option:
    """`field`: of a class of live_options.py that has the value as it is."""

    name: str
    parse: values.Parser
    uses: frozenset[Use]
    field: str = ""


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
        admission=Admission(**_fields(Admission, given)),
        partitioning=Partitioning(**_fields(Partitioning, given)),
        **_fields(ReadOptions, given),
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
    return WriteOptions(cluster=_cluster(given), **_fields(WriteOptions, given))


def cluster_options(options: Mapping[str, str]) -> ClusterOptions:
    """How a stream with these options reaches its cluster. Raises OptionError."""
    return _cluster(_parsed(options, Use.STREAM))


def check_table(given: Mapping[str, str]) -> None:
    """Check the options of CREATE TABLE, which serve reads, streams and writes: all must exist with
    a valid value, and name topics and a cluster. Raises OptionError."""
    values_of: dict[str, Any] = {}
    for key, text in given.items():
        if key in _OF_TABLES:
            continue
        option = _OPTIONS.get(_ALIASES.get(key, key))
        if option is None:
            raise _no_option(key, None)
        values_of[option.name] = values.parsed(option.name, option.parse, text)
    _cluster(values_of)
    _selection(values_of)


def for_use(given: Mapping[str, str], use: Use) -> dict[str, str]:
    """The table's options for this use: it may have others for its other uses."""
    return {
        key: text
        for key, text in given.items()
        if key not in _OF_TABLES
        and ((option := _OPTIONS.get(_ALIASES.get(key, key))) is None or use in option.uses)
    }


def chosen_columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """The option columns: all that a schema depends on. Raises OptionError, also for unknown names:
    this is the first check of the options."""
    given = _lower(options)
    for key in given:
        if key not in SPARKS_OWN and _ALIASES.get(key, key) not in _OPTIONS:
            raise _no_option(key, None)
    text = given.get("columns")
    return None if text is None else values.parsed("columns", values.names, text)


def _parsed(options: Mapping[str, str], use: Use) -> dict[str, Any]:
    """Values by the option's full name."""
    given: dict[str, Any] = {}
    for key, text in _lower(options).items():
        if use is Use.WRITE and key in SPARKS_OWN:
            continue
        option = _OPTIONS.get(_ALIASES.get(key, key))
        if option is None:
            raise _no_option(key, use)
        if use not in option.uses:
            where = " or ".join(sorted(each.value for each in option.uses))
            raise OptionError(f"option {option.name} is for {where}, not for {use.value}")
        if option.name in given:
            raise OptionError(f"option {option.name} is given twice")
        given[option.name] = values.parsed(option.name, option.parse, text)
    return given


def _no_option(key: str, use: Use | None) -> OptionError:
    if key in _GONE:
        return OptionError(f"option {key} does not exist any more: {_GONE[key]}")
    fault = kafka_fault(key)
    if fault is not None:
        return OptionError(fault)
    return OptionError(f"option {key} does not exist{_nearest(key, use)}")


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): text for key, text in options.items()}


def _nearest(key: str, use: Use | None) -> str:
    names = {
        name: option.name for name, option in _OPTIONS.items() if use is None or use in option.uses
    }
    close = difflib.get_close_matches(key, names, n=1)
    if close:
        return f": is {names[close[0]]} meant?"
    return f"; there are {', '.join(sorted(names.values()))}"


def _fields(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options that are fields of a class of live_options.py."""
    names = {each.name for each in fields(kind)}
    return {
        option.field: given[option.name]
        for option in _OPTIONS.values()
        if option.field in names and option.name in given
    }


def _cluster(given: Mapping[str, Any]) -> ClusterOptions:
    """How the cluster is reached; what the options leave open is in the variables and the profile
    file of the driver's machine. Each executor reads the files of certificates and tokens: there
    they must have the same names."""
    settings = {setting: given[name] for name, setting in CONNECTING.items() if name in given}
    settings["endpoint"] = ",".join(given.get("endpoint", ()))
    try:
        profile = chosen(settings)
    except InvalidArgumentError as error:
        raise OptionError(f"options of the connection: {error}") from None
    if not profile.endpoint:
        raise OptionError(
            "option endpoint is missing: name a node of the cluster as host:port, or a cluster of "
            "the profile file with the option cluster"
        )
    return ClusterOptions(
        endpoint=parse_endpoints(profile.endpoint),
        security=profile.security,
        **_fields(ClusterOptions, given),
    )


def _selection(given: Mapping[str, Any]) -> Selection:
    named = [name for name in ("topic", "topics", "topicsPattern", "assign") if name in given]
    if len(named) != 1:
        raise OptionError(
            "exactly one of the options topic, topics, topicsPattern and assign says what is read; "
            + (f"given: {', '.join(named)}" if named else "none is given")
        )
    [name] = named
    if name == "topic":
        return Selection(topics=(given[name],))
    field = {"topics": "topics", "topicsPattern": "pattern", "assign": "assigned"}[name]
    return Selection(**{field: given[name]})


def _position(given: Mapping[str, Any], side: str) -> Position | None:
    """The one option that says where to start (or end)."""
    names = (f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    named = [name for name in names if name in given]
    if len(named) > 1:
        raise OptionError(f"options {' and '.join(named)} contradict each other: give one of them")
    return given[named[0]] if named else None


_READ = frozenset({Use.BATCH, Use.STREAM})
_BATCH = frozenset({Use.BATCH})
_STREAM = frozenset({Use.STREAM})
_WRITE = frozenset({Use.WRITE})
_MOST_BYTES = 32 << 20

_OPTIONS: Final = {
    option.name.lower(): option
    for option in (
        _Option("endpoint", lambda text: parse_endpoints(text.replace(";", ",")), _READ | _WRITE),
        *(_Option(name, values.text, _READ | _WRITE) for name in CONNECTING),
        _Option("requestTimeoutMs", values.whole(1), _READ | _WRITE, "request_timeout_ms"),
        _Option("retryTimeoutMs", values.whole(1), _READ | _WRITE, "retry_timeout_ms"),
        _Option("topic", values.topic, _READ | _WRITE, "topic"),
        _Option("topics", values.topics, _READ),
        _Option("topicsPattern", values.pattern, _READ),
        _Option("assign", lambda text: parse_assignment(json.loads(text)), _READ),
        _Option("startingOffsets", values.starting, _READ),
        _Option("startingTimestamp", values.at_time, _READ),
        _Option("startingOffsetsByTimestamp", values.at_times, _READ),
        _Option(
            "startingOffsetsByTimestampStrategy", values.one_of(Strategy), _READ, "time_strategy"
        ),
        _Option("endingOffsets", values.ending, _BATCH),
        _Option("endingTimestamp", values.at_time, _BATCH),
        _Option("endingOffsetsByTimestamp", values.at_times, _BATCH),
        _Option("failOnDataLoss", values.boolean, _READ, "fail_on_data_loss"),
        _Option("maxOffsetsPerTrigger", values.whole(1), _STREAM, "max_rows"),
        _Option("maxBytesPerTrigger", values.size(1, 1 << 62), _STREAM, "max_bytes"),
        _Option("minOffsetsPerTrigger", values.whole(1), _STREAM, "min_rows"),
        _Option("maxTriggerDelay", values.duration, _STREAM, "max_delay_ms"),
        _Option("minPartitions", values.whole(1, 100_000), _READ, "min_partitions"),
        _Option("maxPartitions", values.whole(1, 100_000), _READ, "max_partitions"),
        _Option("maxRecordsPerPartition", values.whole(1), _READ, "max_records"),
        _Option("columns", values.names, _READ, "columns"),
        _Option("tags", values.tags, _READ, "tags"),
        _Option("where", values.where, _READ, "where"),
        _Option("readFrom", values.one_of(ReadFrom), _READ, "read_from"),
        _Option("groupId", values.group, _READ, "group"),
        _Option("pullBytes", values.size(1, _MOST_BYTES), _READ, "pull_bytes"),
        _Option("pullTimeoutMs", values.whole(1), _READ, "pull_timeout_ms"),
        _Option("verifyCrc", values.boolean, _READ, "verify_crc"),
        _Option("deliveryGuarantee", values.one_of(Guarantee), _WRITE, "guarantee"),
        _Option("idempotencyId", values.writer_name, _WRITE, "idempotency_id"),
        _Option("idempotencyEpoch", values.whole(0, (1 << 31) - 1), _WRITE, "idempotency_epoch"),
        _Option("batchMessages", values.whole(1, 65_535), _WRITE, "batch_messages"),
        _Option("batchBytes", values.size(1, _MOST_BYTES), _WRITE, "batch_bytes"),
        _Option("sendTimeoutMs", values.whole(1), _WRITE, "send_timeout_ms"),
        _Option("waitForCluster", values.boolean, _WRITE, "wait"),
        _Option("uniqueIds", values.boolean, _WRITE, "unique_ids"),
    )
}
_ALIASES: Final = {
    "endpoints": "endpoint",
    "nameservers": "endpoint",
    "subexpression": "tags",
    **KAFKA_ALIASES,
}
PLACES: Final = frozenset(
    {"cluster", "endpoint"} | {name for name in _ALIASES if _ALIASES[name] == "endpoint"}
)
"""The options that say which cluster, in lower case."""
_OF_TABLES: Final = frozenset({"path"})
"""What Spark adds to the options of some tables."""
_GONE: Final = {
    "pushdown": (
        "Spark 4.3 applies a filter that a source takes over to every other use of the same "
        "DataFrame too. Narrow the read by topic, assign, startingOffsets, endingOffsets, tags and "
        "where"
    ),
}
SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark's own options, which users set among those of the sink of a stream."""

"""The settings of one node: a TOML file, then TANDEMLOG_ environment variables over it.

    [store]                      TANDEMLOG_STORE__FLUSH=sync
    flush = "sync"

An unknown key is an error that names the valid ones. Every field has its unit in its name or its
description and its default here; docs/configuration.md is made from this module. The packages
below take plain frozen dataclasses (`store_config`) and read no file and no environment.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from ha.config import HaConfig, Replication, Role
from storage.config import ConfirmSource, FlushMode, RetentionConfig, StoreConfig

from .config_sources import ENV_DELIMITER, ENV_PREFIX, givers

DEFAULT_PORT = 10911

# Environment variables with our prefix that are not settings of a node: what the command line
# reads, and what Kubernetes puts there for a service that happens to be called tandemlog.
_NOT_SETTINGS = re.compile(
    r"TANDEMLOG_(ENDPOINT|FORMAT|SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP)(_.*)?)?)$",
    re.IGNORECASE,
)


class ConfigError(Exception):
    """Settings that cannot be used: one line a fault, each naming the key."""


class Section(BaseModel):
    """Keys are exact; values are checked and not changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RetentionSection(Section):
    """When log files, and the queue and index files that lead into them, are deleted."""

    reserved_hours: float = Field(
        default=72, gt=0, description="age in hours at which a file expires"
    )
    delete_hours: tuple[int, ...] = Field(
        default=(4,), description="hours of the day (0..23, local time) at which expired files go"
    )
    check_interval_ms: int = Field(default=10_000, gt=0, description="time between two looks")
    delete_batch_max: int = Field(default=10, gt=0, description="most files that one look deletes")
    disk_max_used_percent: int = Field(
        default=75, description="disk use above which expired files go at any hour"
    )
    disk_clean_forcibly_percent: int = Field(
        default=85, description="disk use above which files go whatever their age"
    )
    disk_warning_percent: int = Field(
        default=90, description="disk use above which puts are refused"
    )
    clean_forcibly: bool = Field(
        default=True, description="whether files may go before they expire"
    )


class StoreSection(Section):
    """The store on this node's disk. Sizes of files hold for a new store: of one that exists
    the sizes of log and queue files are read from the files."""

    directory: Path = Field(
        default=Path("store"), description="folder of the store; made if missing"
    )
    commit_log_file_size: int = Field(default=1 << 30, description="bytes of a commit log file")
    queue_file_size: int = Field(
        default=6_000_000, description="bytes of a consume queue file, a multiple of 20"
    )
    index_slots: int = Field(default=5_000_000, description="hash slots of an index file")
    index_entries: int = Field(default=20_000_000, description="entries of an index file")
    index_enabled: bool = Field(default=True, description="whether keys are indexed")
    index_tags: bool = Field(
        default=True, description="whether tags are indexed, as RocketMQ 5.4 does"
    )

    flush: FlushMode = Field(
        default=FlushMode.ASYNC,
        description="async: flushed at intervals; sync: a put waits for its flush",
    )
    flush_interval_ms: int = Field(default=500, gt=0, description="time between two flushes")
    flush_least_pages: int = Field(
        default=4, ge=0, description="pages of 4 KiB below which none is done"
    )
    flush_thorough_interval_ms: int = Field(
        default=10_000, gt=0, description="time after which a flush is done however little there is"
    )
    buffered: bool = Field(
        default=False, description="appends go to memory first, to the file at commit_interval_ms"
    )
    commit_interval_ms: int = Field(
        default=200, gt=0, description="time between two commits (buffered)"
    )
    commit_least_pages: int = Field(
        default=4, ge=0, description="pages of 4 KiB below which none is done"
    )
    checkpoint_interval_ms: int = Field(
        default=500,
        gt=0,
        description="least time between checkpoints: flushes of queues, index and producer table",
    )
    warm_up: bool = Field(
        default=False, description="touch every page of a new log file beforehand"
    )
    lock_memory: bool = Field(default=False, description="mlock the log file that is written")

    max_message_size: int = Field(default=4 << 20, gt=0, description="bytes of the largest body")
    max_batch_size: int = Field(default=32 << 20, gt=0, description="bytes of the largest request")
    max_dirty_bytes: int = Field(
        default=1 << 30, gt=0, description="unflushed bytes above which puts wait for the disk"
    )
    busy_timeout_ms: int = Field(
        default=1_000,
        ge=0,
        description="how long a put waits for the disk before it is refused as busy",
    )
    max_reput_lag_bytes: int = Field(
        default=32 << 20,
        gt=0,
        description="bytes not yet in queues and index above which puts wait for dispatch",
    )
    verify_crc_on_recover: bool = Field(default=True, description="check body CRCs in recovery")
    property_crc: bool = Field(
        default=False,
        description="give every record RocketMQ's CRC32 over all its bytes, 20 bytes more, and "
        "check it wherever records are read (RocketMQ: enabledAppendPropCRC, 5.2 and later)",
    )

    store_host: str = Field(
        default="", description="host:port written into records; empty: the advertised endpoint"
    )
    delay_levels: str = Field(
        default="1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        description="RocketMQ's delay levels, for the tags code of delayed messages",
    )
    producer_retention_ms: int = Field(
        default=7 * 24 * 3_600_000,
        ge=3_600_000,
        description="how long a silent producer's sequences are kept, by the log's store times: "
        "twice as long at least as a client repeats a request",
    )
    producer_sequences_kept: int = Field(
        default=64, gt=0, description="last requests of a producer that can be answered again"
    )
    max_topics: int = Field(default=100_000, gt=0, description="topics above which none is made")
    max_queues: int = Field(
        default=1_000_000,
        gt=0,
        le=1 << 22,
        description="queues of all topics above which no topic is made, and no queue gets its "
        "first message",
    )
    max_groups: int = Field(
        default=10_000, gt=0, description="consumer groups above which none is made"
    )
    max_offset_rows: int = Field(
        default=1_000_000,
        gt=0,
        description="consumer offsets (a group and a queue each) above which none is added",
    )
    set_aside_kept: int = Field(
        default=2,
        ge=0,
        description="logs set aside (resync-*) that a slave keeps once it is in sync again",
    )
    set_aside_hours: float = Field(
        default=168, ge=0, description="hours after which it deletes those too, 0: never"
    )
    producers_kept: int = Field(
        default=20_000,
        gt=0,
        description="producers that are known at a time; a new one takes the place of the one that "
        "is silent for longest, and has to wait if that is less than an hour",
    )
    retention: RetentionSection = Field(
        default=RetentionSection(), description="see [store.retention]"
    )


class ReplicationSection(Section):
    """How a master and its slaves keep together."""

    mode: Replication = Field(
        default=Replication.ASYNC,
        description="sync: a put is confirmed when every in-sync replica holds it durably; "
        "async: when the master does",
    )
    min_in_sync: int = Field(
        default=1,
        ge=1,
        description="in-sync replicas, master included, below which sync puts are refused",
    )
    heartbeat_ms: int = Field(
        default=300, gt=0, description="silence on the stream before a heartbeat"
    )
    dead_after_ms: int = Field(
        default=3_000, gt=0, description="silence after which a peer is given up"
    )
    replica_lag_time_ms: int = Field(
        default=3_000, gt=0, description="time behind after which a slave leaves the in-sync set"
    )
    rejoin_ms: int = Field(
        default=1_000,
        ge=0,
        description="time a slave must have kept up before it comes back into the set",
    )
    confirm_interval_ms: int = Field(
        default=5,
        gt=0,
        description="shortest time between two messages that carry the confirm offset only",
    )
    metadata_interval_ms: int = Field(
        default=300,
        gt=0,
        description="time between looks for changed topics, groups, consumer offsets",
    )
    members_interval_ms: int = Field(
        default=1_000, gt=0, description="time between two lists of the members sent to the slaves"
    )
    chunk_bytes: int = Field(
        default=4 << 20,
        description="bytes of log in one message of the stream, at most: less on a slow link",
    )
    window_bytes: int = Field(
        default=256 << 20, description="bytes sent to a slave and not yet acknowledged, at most"
    )
    flush_batch_bytes: int = Field(
        default=16 << 20, gt=0, description="bytes a slave takes before it flushes and acknowledges"
    )
    log_first_bytes: int = Field(
        default=16 << 20,
        ge=0,
        description="bytes behind the master above which a slave takes log before it dispatches",
    )
    log_first_ms: int = Field(
        default=10_000, ge=0, description="longest time that its dispatch is held back so"
    )
    proof_bytes: int = Field(
        default=64 << 10,
        gt=0,
        description="bytes before its end that a slave proves equal on connecting",
    )
    checksum_block_bytes: int = Field(
        default=1 << 20, gt=0, description="bytes of a block when logs are compared by checksums"
    )
    reconnect_min_ms: int = Field(
        default=100, gt=0, description="first pause before connecting again"
    )
    reconnect_max_ms: int = Field(
        default=5_000, gt=0, description="longest pause before connecting again"
    )
    refused_retry_ms: int = Field(
        default=10_000, gt=0, description="pause after a refusal that an operator has to resolve"
    )
    forget_after_ms: int = Field(
        default=600_000,
        gt=0,
        description="time after which a slave that is away and was not in sync leaves the list",
    )
    max_streams: int = Field(
        default=64,
        gt=0,
        description="streams of slaves that were never in sync; as many more for the others",
    )


class PutSection(Section):
    """How puts are taken."""

    timeout_ms: int = Field(
        default=5_000,
        gt=0,
        description="how long a put waits for its confirmation; then: outcome unknown",
    )
    max_pending_bytes: int = Field(
        default=128 << 20,
        gt=0,
        description="bytes of requests that wait to be appended; then streams wait",
    )
    max_unconfirmed_bytes: int = Field(
        default=1 << 30,
        gt=0,
        description="bytes of log that are not confirmed yet above which puts are refused, those "
        "that do not wait for replicas too",
    )


class PullSection(Section):
    """How pulls are answered."""

    threads: int = Field(
        default=4, ge=1, le=64, description="threads that read for pulls and queries"
    )
    max_bytes: int = Field(
        default=8 << 20,
        gt=0,
        le=48 << 20,
        description="most bytes of one answer, the first record apart; gRPC copies them in the "
        "event loop, some milliseconds for 8 MiB",
    )
    max_wait_ms: int = Field(default=60_000, ge=0, description="longest long poll")
    chunk_bytes: int = Field(
        default=1 << 20, gt=0, le=8 << 20, description="bytes of a chunk of FetchSegmentRange"
    )


class LimitsSection(Section):
    """What all callers together may take of this node, replication apart. What is over a limit is
    refused as BUSY."""

    calls: int = Field(
        default=8_192, ge=16, description="calls under way, streams and long polls included"
    )
    streams: int = Field(
        default=1_024, ge=4, description="streams of puts, of log ranges and of health"
    )
    long_polls: int = Field(default=4_096, ge=0, description="pulls that wait for a message")
    answer_bytes: int = Field(
        default=256 << 20,
        ge=8 << 20,
        description="bytes of answers that are read or not yet sent, counted twice, since gRPC "
        "copies them; one connection may have half",
    )


class LogSection(Section):
    """What the node says on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least level that is written"
    )


class NodeConfig(BaseSettings):
    """One node of a cluster."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
    )

    cluster_id: str = Field(
        default="tandemlog",
        min_length=1,
        description="name of the cluster; nodes of another are refused",
    )
    node_id: str = Field(
        default="n0",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="name of this node in the cluster",
    )
    role: Literal["master", "slave"] = Field(default="master", description="what this node is")
    master: str = Field(
        default="", description="host:port of the master's gRPC services; for a slave"
    )
    listen: str = Field(
        default=f"127.0.0.1:{DEFAULT_PORT}",
        description="host:port of the gRPC services; port 0: any free",
    )
    advertise: str = Field(
        default="", description="host:port by which others reach this node; empty: listen"
    )
    http_listen: str = Field(
        default="127.0.0.1:10921",
        description="host:port of health and metrics; empty: none; port 0: any",
    )
    stop_timeout_ms: int = Field(
        default=10_000, gt=0, description="how long a stop waits for the puts that are under way"
    )
    store: StoreSection = Field(default=StoreSection(), description="see [store]")
    replication: ReplicationSection = Field(
        default=ReplicationSection(), description="see [replication]"
    )
    put: PutSection = Field(default=PutSection(), description="see [put]")
    pull: PullSection = Field(default=PullSection(), description="see [pull]")
    limits: LimitsSection = Field(default=LimitsSection(), description="see [limits]")
    log: LogSection = Field(default=LogSection(), description="see [log]")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # the file's content comes as init arguments; the environment stands above it
        return env_settings, init_settings

    @field_validator("listen", "advertise", "http_listen", "master")
    @classmethod
    def _is_endpoint(cls, value: str) -> str:
        if value:
            split_endpoint(value)
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> "NodeConfig":
        if self.role == "slave" and not self.master:
            raise ValueError("master: a slave needs the endpoint of its master")
        if self.replication.min_in_sync > 1 and self.replication.mode is Replication.ASYNC:
            raise ValueError('replication.min_in_sync above 1 needs replication.mode = "sync"')
        if not self.listen:
            raise ValueError("listen: must be host:port")
        # the rules of the packages themselves
        self.store_config(store_host="127.0.0.1:1")
        self.ha_config(endpoint="127.0.0.1:1", http_endpoint="", store_host="127.0.0.1:1")
        return self

    def store_config(self, *, store_host: str) -> StoreConfig:
        """The store's settings; `store_host` is used where the configuration names none."""
        values = {name: getattr(self.store, name) for name in StoreSection.model_fields}
        values["store_host"] = self.store.store_host or store_host
        values["retention"] = RetentionConfig(**dict(self.store.retention))
        # a master without slaves too: its replication decides what is confirmed
        values["confirm"] = ConfirmSource.REPLICATION
        return StoreConfig(**values)

    def ha_config(self, *, endpoint: str, http_endpoint: str, store_host: str) -> HaConfig:
        """The replication's settings; the endpoints are those that others use."""
        values = dict(self.replication)
        return HaConfig(
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            role=Role(self.role),
            endpoint=endpoint,
            http_endpoint=http_endpoint,
            store_host=store_host,
            master_endpoint=self.master,
            replication=values.pop("mode"),
            **values,
        )


def split_endpoint(text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises ValueError that names the text."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"must be host:port with a port of 0..65535, not {text!r}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"an IPv6 address stands in brackets: {text!r}")
    return host.strip("[]"), int(port)


def load_config(path: Path | None) -> NodeConfig:
    """Read `path` (None: defaults) and the environment. Raises ConfigError."""
    content: dict[str, Any] = {}
    if path is not None:
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as problem:
            raise ConfigError(f"cannot read {path}: {problem.strerror}") from problem
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            raise ConfigError(f"{path} is not TOML: {problem}") from problem
    faults = _unknown_variables(os.environ)
    try:
        config = NodeConfig(**content)
    except ValidationError as problem:
        faults = [
            f"{_source(path, fault)}: {_explain(fault)}" for fault in problem.errors()
        ] + faults
    except SettingsError as problem:
        faults = [_not_json(problem, os.environ), *faults]
    if faults:
        raise ConfigError("\n".join(faults))
    return config


def _source(path: Path | None, fault: Any) -> str:
    """What its owner has to change: the variables that gave the key, else the file. What is wrong
    with several keys together names the file and every variable that is set."""
    location = fault["loc"]
    if location:
        names = givers(location, os.environ)
        if names:
            return ", ".join(names)
        return str(path) if path is not None else "the environment"
    valid = _variables(NodeConfig, ENV_PREFIX)
    names = sorted(name for name in os.environ if name.upper() in valid)
    return " and ".join(filter(None, [str(path) if path is not None else "", ", ".join(names)]))


def _not_json(problem: SettingsError, environment: Mapping[str, str]) -> str:
    """The variable that should hold JSON, as a section or a list does, and does not."""
    cause = problem.__cause__
    if not isinstance(cause, json.JSONDecodeError):
        return f"the environment: {problem}"
    names = [name for name, text in environment.items() if text == cause.doc]
    return f"{', '.join(sorted(names))}: must be JSON: {cause} (got {cause.doc!r})"


def _explain(fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        section = valid_keys(fault["loc"][:-1])
        where = ".".join(str(part) for part in fault["loc"][:-1])
        return f"unknown key {key}; valid{f' in [{where}]' if where else ''}: {', '.join(section)}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"{key}: {message} (got {fault['input']!r})" if key else message


def valid_keys(location: tuple[str | int, ...]) -> list[str]:
    """The keys of the section at `location`."""
    model: type[BaseModel] = NodeConfig
    for part in location:
        annotation = model.model_fields[str(part)].annotation
        assert isinstance(annotation, type)
        assert issubclass(annotation, BaseModel)
        model = annotation
    return sorted(model.model_fields)


def _variables(model: type[BaseModel], prefix: str) -> set[str]:
    names = set()
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name}".upper()
        names.add(variable)
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            names |= _variables(annotation, f"{variable}{ENV_DELIMITER}")
    return names


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    valid = _variables(NodeConfig, ENV_PREFIX)
    return [
        f"unknown environment variable {name}; a key k of section s is "
        f"{ENV_PREFIX}S{ENV_DELIMITER}K, see docs/configuration.md"
        for name in sorted(environment)
        if name.upper().startswith(ENV_PREFIX)
        and name.upper() not in valid
        and not _NOT_SETTINGS.match(name)
    ]

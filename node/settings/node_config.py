"""The settings of one node: a TOML file, then TANDEMLOG_ environment variables over it.

    [store]                      TANDEMLOG_STORE__FLUSH=sync
    flush = "sync"

An unknown key is an error that names the valid ones. Every field has its unit in its name or its
description; sections.py says where a section is declared. docs/configuration.md is generated from
all of them. The packages below take plain frozen dataclasses (`store_config`) and read no file and
no environment.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import Ge, Gt, MinLen
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from tandemlog.format.calls import DEFAULT_PORT
from tandemlog.transport.security import Security
from tandemlog.transport.security_files import SecurityFileError, SecurityFiles
from tandemlog_server.ha.config import HaConfig, Replication, ReplicationConfig, Role
from tandemlog_server.ha.coordinator.options import CoordinatorOptions
from tandemlog_server.ha.election.election_config import ElectionConfig
from tandemlog_server.rocketmq.follow.address import parse_address
from tandemlog_server.storage.config import StoreConfig

from .config_error import ConfigError
from .setting_sources import ENV_DELIMITER, ENV_PREFIX, givers, location_of, variable_of
from .coordinator_section import CoordinatorSection
from .host_port import join, split_endpoint
from .rocketmq_section import RocketmqSection, rocketmq_fault
from .sections import (
    FollowingSection,
    GroupsSection,
    LimitsSection,
    LogSection,
    PullSection,
    PutSection,
    ReplicationSection,
    StoreSection,
    keys_of,
    section_of,
)
from .security_sections import SecuritySection, TlsSection, exposure_fault

AUTO = "auto"
Dataclass = TypeVar("Dataclass", StoreConfig, ReplicationConfig)

# Environment variables with our prefix that are not settings of a node: what the command line
# reads, and what Kubernetes puts there for a service that happens to be called tandemlog.
_NOT_SETTINGS = re.compile(
    r"TANDEMLOG_(ENDPOINT|FORMAT|CLUSTER|(CA|CERT|KEY|TOKEN)_FILE|TOKEN|SERVER_NAME|CONFIG_DIR|"
    r"MAX_UNPACKED_BYTES|"
    r"SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP)(_.*)?)?)$",
    re.IGNORECASE,
)


class NodeConfig(BaseSettings):
    """Identity, role and addresses of the node."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
    )

    cluster_id: Annotated[str, MinLen(1)] = "tandemlog"
    """Name of the cluster; nodes of other clusters are refused."""
    node_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "n0"
    """Name of this node, unique in the cluster."""
    role: Literal["master", "slave"] = "master"
    """Role of this node."""
    master: str = ""
    """host:port of the master's gRPC services; required on a slave."""
    follow: str = ""
    """RocketMQ broker whose log this node follows as a slave, in place of a role:
    rocketmq://HOST:PORT with the broker's listen port, or rocketmq://HOST:PORT,HOST:PORT/NAME with
    its name servers and its name. The node takes no puts until `tandemlog takeover`."""
    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    """host:port on which the gRPC services listen; port 0 means any free port."""
    advertise: str = ""
    """host:port at which others reach this node; if empty, the value of listen."""
    http_listen: str = "127.0.0.1:10921"
    """host:port of health checks and metrics; empty means none, port 0 any free port."""
    data_listen: str = AUTO
    """host:port of data connections, by which clients put and pull at less cost than by gRPC; port
    0 means any free port. auto: the host of listen and any free port, or none on a node with [tls],
    since they are not encrypted; empty means none. Clients try the port at the host at which they
    reach the node, and use gRPC if that fails."""
    stop_timeout_ms: Annotated[int, Gt(0)] = 10_000
    """How long a stop waits for puts that are in progress."""
    insecure: bool = False
    """Whether the node may listen on addresses that other machines reach although it has no TLS, or
    no proof of who calls."""
    clock_tolerance_ms: Annotated[int, Ge(0)] = 3_600_000
    """How far this machine's clock may be behind the newest message of the store; a node whose
    clock is further behind does not start."""
    store: StoreSection = StoreSection()
    replication: ReplicationSection = ReplicationSection()
    following: FollowingSection = FollowingSection()
    coordinator: CoordinatorSection = CoordinatorSection()
    put: PutSection = PutSection()
    pull: PullSection = PullSection()
    limits: LimitsSection = LimitsSection()
    groups: GroupsSection = GroupsSection()
    tls: TlsSection = TlsSection()
    security: SecuritySection = SecuritySection()
    rocketmq: RocketmqSection = RocketmqSection()
    log: LogSection = LogSection()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The file's content comes as init arguments, and the environment stands above it, key by
        # key: of a section that is an object already no single key could be replaced.
        content = {name: _given(value) for name, value in init_settings().items()}
        return env_settings, InitSettingsSource(settings_cls, init_kwargs=content)

    @field_validator("listen", "advertise", "http_listen", "master")
    @classmethod
    def _is_endpoint(cls, value: str) -> str:
        if value:
            split_endpoint(value)
        return value

    @field_validator("data_listen")
    @classmethod
    def _is_data_endpoint(cls, value: str) -> str:
        if value not in ("", AUTO):
            split_endpoint(value)
        return value

    @field_validator("follow")
    @classmethod
    def _is_broker(cls, value: str) -> str:
        if value:
            parse_address(value)
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> "NodeConfig":
        if self.elects and self.model_fields_set & {"role", "master"}:
            raise ValueError(
                "role and master: with coordinator.endpoints the cluster elects; leave them out"
            )
        if self.follow and (self.elects or self.model_fields_set & {"role", "master"}):
            raise ValueError(
                "follow: a node that follows a RocketMQ broker has no other role and takes part in "
                "no election; leave role, master and coordinator.endpoints out"
            )
        if self.role == "slave" and not self.master:
            raise ValueError("master: a slave needs the endpoint of its master")
        if self.replication.min_in_sync > 1 and self.replication.mode is not Replication.SYNC:
            raise ValueError('replication.min_in_sync above 1 needs replication.mode = "sync"')
        if not self.listen:
            raise ValueError("listen: must be host:port")
        if self.tls.serves and self.data_listen not in ("", AUTO):
            raise ValueError(
                "data_listen: data connections are not encrypted, and this node has [tls]: leave "
                "data_listen out, clients then use gRPC"
            )
        addresses = {
            "listen": self.listen,
            "http_listen": self.http_listen,
            "data_listen": self.data_endpoint,
        }
        reached = {key: split_endpoint(value)[0] for key, value in addresses.items() if value}
        if fault := exposure_fault(reached, self.tls, self.security, insecure=self.insecure):
            raise ValueError(fault)
        if fault := rocketmq_fault(
            self.rocketmq, addresses, elects=self.elects, insecure=self.insecure
        ):
            raise ValueError(fault)
        # the rules of the packages themselves
        self.election_config()
        self.store_config(store_host="127.0.0.1:1")
        self.ha_config(endpoint="127.0.0.1:1", http_endpoint="", store_host="127.0.0.1:1")
        return self

    def store_config(self, *, store_host: str) -> StoreConfig:
        """The store's settings; `store_host` is used where the configuration names none."""
        values = _values(StoreConfig, self.store)
        values["store_host"] = self.store.store_host or store_host
        return StoreConfig(**values)

    @property
    def data_endpoint(self) -> str:
        """host:port of data connections; empty if there are none."""
        if self.data_listen != AUTO:
            return self.data_listen
        return "" if self.tls.serves else join(split_endpoint(self.listen)[0], 0)

    @property
    def ha_role(self) -> Role:
        """What the configuration makes of this node."""
        if self.follow:
            return Role.RELAY
        return Role.ELECTED if self.elects else Role(self.role)

    @property
    def elects(self) -> bool:
        """Whether the cluster elects its master; else roles are configured."""
        return bool(self.coordinator.endpoints)

    def election_config(self) -> ElectionConfig:
        """The settings of elections."""
        section = self.coordinator
        return ElectionConfig(
            founders=frozenset(section.members),
            priority=section.priority,
            may_lead=section.may_lead,
            lease_ttl_s=section.lease_ttl_s,
            renew_s=section.renew_ms / 1000,
            margin_s=section.margin_ms / 1000,
            budget_s=section.budget_ms / 1000,
        )

    def coordinator_options(self) -> CoordinatorOptions:
        """How this node reaches the coordinator. Raises ConfigError for a file that cannot be
        used."""
        section, tls = self.coordinator, self.tls
        security = Security()
        if section.encrypted:
            own = section if section.cert_file else tls
            ca_file = section.ca_file or tls.ca_file
            if section.tls and not (ca_file or own.cert_file):
                raise ConfigError("coordinator.tls: give coordinator.ca_file or tls.ca_file too")
            security = Security(ca_file, own.cert_file, own.key_file)
        try:
            SecurityFiles(security).current()
        except SecurityFileError as error:
            raise ConfigError(f"coordinator: {error}") from None
        return CoordinatorOptions(
            endpoints=section.endpoints,
            attempt_s=section.attempt_ms / 1000,
            budget_s=section.budget_ms / 1000,
            security=security,
            user=section.user,
            password=section.password,
        )

    def peer_security(self) -> Security:
        """What this node shows to other nodes, and by what it knows them."""
        tls = self.tls
        return Security(
            tls.ca_file,
            tls.cert_file,
            tls.key_file,
            token_file=self.security.token_file,
            insecure=self.insecure,
        )

    def ha_config(self, *, endpoint: str, http_endpoint: str, store_host: str) -> HaConfig:
        """The replication's settings; the endpoints are those that others use."""
        return HaConfig(
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            role=self.ha_role,
            endpoint=endpoint,
            http_endpoint=http_endpoint,
            store_host=store_host,
            master_endpoint=self.master,
            security=self.peer_security(),
            **_values(ReplicationConfig, self.replication),
        )


def _values(kind: type[Dataclass], section: Dataclass) -> dict[str, Any]:
    """What `section` has for the fields of the class that it inherits from."""
    return {each.name: getattr(section, each.name) for each in fields(kind)}


def _given(value: object) -> object:
    """A section as the keys that its object was given."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    if is_dataclass(value) and not isinstance(value, type):
        values = ((each, getattr(value, each.name)) for each in fields(value) if each.init)
        return {each.name: _given(now) for each, now in values if now != each.default}
    return value


def load_config(path: Path | None) -> NodeConfig:
    """Read `path` (None: defaults) and the environment. Raises ConfigError."""
    content: dict[str, Any] = {}
    if path is not None:
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            raise ConfigError(f"{path} is not TOML: {error}") from error
    return config_of(content, path)


def config_of(content: Mapping[str, Any], path: Path | None) -> NodeConfig:
    """What the file `path` with this content and the environment make. Raises ConfigError."""
    faults = _unknown_variables(os.environ)
    try:
        config = NodeConfig(**content)
    except ValidationError as error:
        faults = [f"{_source(path, fault)}: {_explain(fault)}" for fault in error.errors()] + faults
    except SettingsError as error:
        faults = [_not_json(error, os.environ), *faults]
    if faults:
        raise ConfigError("\n".join(faults))
    return config


def _source(path: Path | None, fault: Any) -> str:
    """What its owner has to change: the variables that gave the key, else the file. What is wrong
    with several keys together names the file and every variable that is set for one of them."""
    location, file = fault["loc"], "" if path is None else str(path)
    section = _failed_section(fault)
    if section is None:
        return ", ".join(givers(location, os.environ)) or file or "the environment"
    valid = {variable_of(location), *_variables(section, variable_of((*location, "")))}
    names = sorted(name for name in os.environ if name.upper() in valid)
    return " and ".join(filter(None, [file, ", ".join(names)]))


def _failed_section(fault: Any) -> type | None:
    """The section whose own check of several keys has failed."""
    return section_at(fault["loc"]) if fault["type"] == "value_error" else None


def _not_json(problem: SettingsError, environment: Mapping[str, str]) -> str:
    """The variable that should hold JSON, as a section or a list does, and does not."""
    cause = problem.__cause__
    if not isinstance(cause, json.JSONDecodeError):
        return f"the environment: {problem}"
    names = sorted(name for name, text in environment.items() if text == cause.doc)
    secret = any(_holds_secret(section_at(location_of(name))) for name in names)
    got = "" if secret else f" (got {cause.doc!r})"
    return f"{', '.join(names)}: must be JSON: {cause}{got}"


def _holds_secret(section: type | None) -> bool:
    return section is not None and not all(key.repr for key in keys_of(section).values())


def _explain(fault: Any) -> str:
    location = fault["loc"]
    key = ".".join(str(part) for part in location)
    if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        section = valid_keys(location[:-1])
        where = ".".join(str(part) for part in location[:-1])
        return f"unknown key {key}; valid{f' in [{where}]' if where else ''}: {', '.join(section)}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    if not location:
        return message
    # the values of a whole section would say less than its message, and may have a secret
    declared = key_at(location)
    if _failed_section(fault) or (declared is not None and not declared.repr):
        return f"{key}: {message}"
    return f"{key}: {message} (got {fault['input']!r})"


def section_at(location: tuple[str | int, ...]) -> type | None:
    """The section at `location`, which for () is the top level; None for what is no section."""
    section: type | None = NodeConfig
    for part in location:
        key = None if section is None else keys_of(section).get(str(part))
        section = None if key is None else section_of(key)
    return section


def key_at(location: tuple[str | int, ...]) -> FieldInfo | None:
    """The declared key at `location`; None for a part of a value."""
    section = section_at(location[:-1])
    return None if section is None else keys_of(section).get(str(location[-1]))


def valid_keys(location: tuple[str | int, ...]) -> list[str]:
    """The keys of the section at `location`."""
    section = section_at(location)
    return [] if section is None else sorted(keys_of(section))


def _variables(section: type, prefix: str) -> set[str]:
    """The variable of every key of a section and below it, in capitals."""
    names = set()
    for name, key in keys_of(section).items():
        variable = f"{prefix}{name}".upper()
        names.add(variable)
        if below := section_of(key):
            names |= _variables(below, f"{variable}{ENV_DELIMITER}")
    return names


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    valid = _variables(NodeConfig, ENV_PREFIX)
    return [
        f"unknown environment variable {name}; the variable of key k in section s is "
        f"{ENV_PREFIX}S{ENV_DELIMITER}K, see docs/configuration.md"
        for name in sorted(environment)
        if name.upper().startswith(ENV_PREFIX)
        and name.upper() not in valid
        and not _NOT_SETTINGS.match(name)
    ]

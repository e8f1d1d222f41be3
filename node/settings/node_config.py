"""The settings of one node: a TOML file, then TANDEMLOG_ environment variables over it.

    [store]                      TANDEMLOG_STORE__FLUSH=sync
    flush = "sync"

An unknown key is an error that names the valid ones. Every field has its unit in its name or its
description; sections.py says where a section is declared. docs/configuration.md is generated from
all of them, and config_loading.py reads them. The packages below take plain frozen dataclasses
(`store_config`) and read no file and no environment.
"""

from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import Ge, Gt, MinLen
from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from tandemlog.format.calls import DEFAULT_PORT
from tandemlog.transport.security import Security
from tandemlog.transport.security_files import SecurityFileError, SecurityFiles
from tandemlog_server.ha.config import HaConfig, Replication, ReplicationConfig, Role
from tandemlog_server.ha.coordinator.options import CoordinatorOptions
from tandemlog_server.ha.election.election_config import ElectionConfig
from tandemlog_server.rocketmq.follow.address import parse_address
from tandemlog_server.storage.config import StoreConfig

from .archive_section import ArchiveSection
from .config_error import ConfigError
from .console_section import ConsoleSection
from .coordinator_section import CoordinatorSection
from .host_port import join, split_endpoint
from .rocketmq_clients_section import RocketmqClientsSection, rocketmq_clients_fault
from .rocketmq_section import RocketmqSection, rocketmq_fault
from .sections import (
    FollowingSection,
    GroupsSection,
    LimitsSection,
    LogSection,
    PullSection,
    PutSection,
    ReplicationSection,
    ScrubSection,
    StoreSection,
    TransactionsSection,
    WorkSection,
)
from .security_sections import SecuritySection, TlsSection, exposure_fault

AUTO = "auto"
ENV_PREFIX = "TANDEMLOG_"
ENV_DELIMITER = "__"
Dataclass = TypeVar("Dataclass", StoreConfig, ReplicationConfig)


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
    archive: ArchiveSection = ArchiveSection()
    coordinator: CoordinatorSection = CoordinatorSection()
    put: PutSection = PutSection()
    pull: PullSection = PullSection()
    limits: LimitsSection = LimitsSection()
    groups: GroupsSection = GroupsSection()
    work: WorkSection = WorkSection()
    transactions: TransactionsSection = TransactionsSection()
    tls: TlsSection = TlsSection()
    security: SecuritySection = SecuritySection()
    rocketmq: RocketmqSection = RocketmqSection()
    rocketmq_clients: RocketmqClientsSection = RocketmqClientsSection()
    scrub: ScrubSection = ScrubSection()
    console: ConsoleSection = ConsoleSection()
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
        if fault := rocketmq_clients_fault(
            self.rocketmq_clients,
            {**addresses, "rocketmq.listen": self.rocketmq.listen},
            proven=bool(self.security.access_file) or self.tls.requires_certificates,
            tls=self.tls.serves,
            insecure=self.insecure,
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

    def ha_config(
        self,
        *,
        endpoint: str,
        http_endpoint: str,
        store_host: str,
        rocketmq_endpoint: str = "",
        rocketmq_grpc_endpoint: str = "",
    ) -> HaConfig:
        """The replication's settings; the endpoints are those that others use."""
        return HaConfig(
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            role=self.ha_role,
            endpoint=endpoint,
            http_endpoint=http_endpoint,
            store_host=store_host,
            rocketmq_endpoint=rocketmq_endpoint,
            rocketmq_grpc_endpoint=rocketmq_grpc_endpoint,
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

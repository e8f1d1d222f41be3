"""The section [coordinator] of a node's settings."""

from pydantic import Field

from .sections import Section


class CoordinatorSection(Section):
    """The coordinator by which the nodes elect their master: etcd, or `tandemlog coordinator`.
    Without endpoints, `role` and `master` decide."""

    endpoints: tuple[str, ...] = Field(
        default=(),
        description="host:port of each member of the coordinator; empty means that roles are "
        "configured.",
    )
    members: tuple[str, ...] = Field(
        default=(),
        description="Node ids that must be up before a new cluster elects its first master; empty "
        "means those that have come after 3 seconds.",
    )
    may_lead: bool = Field(default=True, description="Whether this node may become the master.")
    priority: int = Field(
        default=0,
        ge=-1_000,
        le=1_000,
        description="Of nodes with equally complete logs, the highest priority becomes the master.",
    )
    lease_ttl_s: int = Field(
        default=6,
        ge=3,
        le=60,
        description="Seconds after its last renewal at which the coordinator ends a node's lease.",
    )
    renew_ms: int = Field(default=1_000, gt=0, description="Time between two renewals.")
    margin_ms: int = Field(
        default=1_000,
        gt=0,
        description="How much earlier than the coordinator a master stops relying on its lease.",
    )
    attempt_ms: int = Field(
        default=800, gt=0, description="Timeout of one attempt at one member of the coordinator."
    )
    budget_ms: int = Field(
        default=2_000, gt=0, description="Timeout of all attempts of one request together."
    )
    user: str = Field(default="", description="User name at etcd; empty means none.")
    password: str = Field(default="", repr=False, description="Password of that user.")
    ca_file: str = Field(
        default="",
        description="PEM file of the authority that signed the coordinator's certificates; given, "
        "the connection uses TLS.",
    )
    cert_file: str = Field(default="", description="PEM file of this node's client certificate.")
    key_file: str = Field(default="", description="PEM file of its key.")

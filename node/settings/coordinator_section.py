"""The section [coordinator] of a node's settings."""

from pydantic import Field, model_validator

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
        "the connection uses TLS. Empty means that of [tls], if the connection uses TLS.",
    )
    cert_file: str = Field(
        default="",
        description="PEM file of this node's client certificate; empty means that of [tls], if the "
        "connection uses TLS.",
    )
    key_file: str = Field(default="", description="PEM file of its key.")
    tls: bool = Field(
        default=False,
        description="Whether the connection uses TLS; it always does if ca_file or "
        "cert_file is given.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "CoordinatorSection":
        if bool(self.cert_file) != bool(self.key_file):
            lacking = "key_file" if self.cert_file else "cert_file"
            raise ValueError(f"{lacking} is missing: give a certificate and its key, or neither")
        others = sorted(self.model_fields_set - {"endpoints"})
        if others and not self.endpoints:
            # a node that lost its endpoints would make itself the master
            raise ValueError(
                f"endpoints is missing, and {', '.join(others)} given: name the coordinator, or "
                "leave the whole section out, then role and master decide"
            )
        return self

    @property
    def encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return self.tls or bool(self.ca_file or self.cert_file)

"""The section [coordinator] of a node's settings; defaults are those of ha, there in seconds."""

from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import Field, model_validator

from tandemlog_server.ha.coordinator.options import ATTEMPT_S, BUDGET_S
from tandemlog_server.ha.election.election_config import ElectionConfig

from .sections import Section

_ELECTION = ElectionConfig()


class CoordinatorSection(Section):
    """The coordinator by which the nodes elect their master: etcd, or `tandemlog coordinator`.
    Without endpoints, `role` and `master` decide."""

    endpoints: tuple[str, ...] = ()
    """host:port of each member of the coordinator; empty means that roles are configured."""
    members: tuple[str, ...] = ()
    """Node ids that must be up before a new cluster elects its first master; empty means those that
    have come after 3 seconds."""
    may_lead: bool = _ELECTION.may_lead
    """Whether this node may become the master."""
    priority: Annotated[int, Ge(-1_000), Le(1_000)] = _ELECTION.priority
    """Of nodes with equally complete logs, the highest priority becomes the master."""
    lease_ttl_s: Annotated[int, Ge(3), Le(60)] = _ELECTION.lease_ttl_s
    """Seconds after its last renewal at which the coordinator ends a node's lease."""
    renew_ms: Annotated[int, Gt(0)] = round(_ELECTION.renew_s * 1000)
    """Time between two renewals."""
    margin_ms: Annotated[int, Gt(0)] = round(_ELECTION.margin_s * 1000)
    """How much earlier than the coordinator a master stops relying on its lease."""
    attempt_ms: Annotated[int, Gt(0)] = round(ATTEMPT_S * 1000)
    """Timeout of one attempt at one member of the coordinator."""
    budget_ms: Annotated[int, Gt(0)] = round(BUDGET_S * 1000)
    """Timeout of all attempts of one request together."""
    user: str = ""
    """User name at etcd; empty means none."""
    password: Annotated[str, Field(repr=False)] = ""
    """Password of that user."""
    ca_file: str = ""
    """PEM file of the authority that signed the coordinator's certificates; given, the connection
    uses TLS. Empty means that of [tls], if the connection uses TLS."""
    cert_file: str = ""
    """PEM file of this node's client certificate; empty means that of [tls], if the connection uses
    TLS."""
    key_file: str = ""
    """PEM file of its key."""
    tls: bool = False
    """Whether the connection uses TLS; it always does if ca_file or cert_file is given."""

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

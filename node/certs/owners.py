"""What a certificate of a cluster says about its owner.

    URI  tandemlog://CLUSTER/node/n1          a node: serves, and calls other nodes
         tandemlog://CLUSTER/coordinator/c0   serves nodes, calls no node
         tandemlog://CLUSTER/client/orders    calls only

The URI is one of the subject's alternative names, as in SPIFFE; the common name repeats the
name for people. Names are quoted as in a URL, so a name with a slash is still one part.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, unquote

SCHEME = "tandemlog"
_NAME = re.compile(r"^[A-Za-z0-9._-]{1,64}$")


class OwnerKind(StrEnum):
    """Of an owner."""

    NODE = "node"
    COORDINATOR = "coordinator"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Owner:
    """Raises ValueError for a name that could not be a common name and a file's name."""

    cluster: str
    kind: OwnerKind
    name: str

    def __post_init__(self) -> None:
        if not _NAME.match(self.name) or self.name.startswith("."):
            raise ValueError(
                f"the name of a {self.kind} must be 1 to 64 of A-Z a-z 0-9 . _ - and must not "
                f"begin with a dot, not {self.name!r}"
            )
        if not self.cluster:
            raise ValueError("the name of the cluster must not be empty")

    @property
    def uri(self) -> str:
        """As the certificate has it."""
        return f"{SCHEME}://{quote(self.cluster, safe='')}/{self.kind}/{quote(self.name, safe='')}"


def owner_of(uri: str) -> Owner | None:
    """The owner that a URI names; None for any other URI."""
    scheme, colon, rest = uri.partition("://")
    parts = rest.split("/")
    if not colon or scheme != SCHEME or len(parts) != 3:
        return None
    try:
        return Owner(unquote(parts[0]), OwnerKind(parts[1]), unquote(parts[2]))
    except ValueError:
        return None

"""A state: what a node keeps beside its log, as it was when the log was confirmed up to an offset.

The tables are those that travel to slaves too, each as its file has it (`topics`, `groups`,
`consumer-offsets`, `group-members`, `log-identity`). They are read after `log_offset` was: a table
may know of what lies a little beyond it, never of less. Who takes them for a log that ends at or
above `log_offset` limits consumer offsets to the ends of the queues, as recovery does.

The prologue is what queues and producers have of the log below `log_offset`: a log that begins
there needs it. It is taken where a commit log file begins.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import FormatError
from .object_name import StateName, digest_of
from .packed_json import pack_json, unpack_json

FORMAT: Final = "tandemlog archive state 1"
TOPICS: Final = "topics"
GROUPS: Final = "groups"
CONSUMER_OFFSETS: Final = "consumer-offsets"
GROUP_MEMBERS: Final = "group-members"
LOG_IDENTITY: Final = "log-identity"


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """See the module. `tables`: by name, each the JSON text of its file; `prologue` None: not
    taken; `at_ms`: when it was taken."""

    log_offset: int
    tables: Mapping[str, str] = field(default_factory=dict)
    prologue: bytes | None = None
    at_ms: int = 0


def encode_state(state: ArchiveState) -> tuple[StateName, bytes]:
    """Its name and its content."""
    prologue = state.prologue
    content = pack_json(
        {
            "format": FORMAT,
            "log_offset": state.log_offset,
            "at_ms": state.at_ms,
            "tables": dict(state.tables),
            "prologue": None if prologue is None else base64.b64encode(prologue).decode(),
        }
    )
    return StateName(state.log_offset, digest_of(content)), content


def decode_state(name: StateName, content: bytes) -> ArchiveState:
    """Raises FormatError unless it is the state of that name, whole."""
    if digest_of(content) != name.digest:
        raise FormatError(f"{name.key} has other content than its name says")
    value: Any = unpack_json(content)
    try:
        if value["format"] != FORMAT:
            raise FormatError(f"{name.key} is of the format {str(value['format'])[:80]!r}")
        packed = value["prologue"]
        state = ArchiveState(
            int(value["log_offset"]),
            {str(table): str(text) for table, text in value["tables"].items()},
            None if packed is None else base64.b64decode(packed, validate=True),
            int(value["at_ms"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError, binascii.Error) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{name.key} is no state: {error!r}") from error
    if state.log_offset != name.log_offset:
        raise FormatError(f"{name.key} is of {state.log_offset} in its content")
    return state

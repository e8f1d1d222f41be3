"""docs/configuration.md, generated from the model of the settings, so that it stays up to date.

usage: python -m tandemlog_server.node.settings.config_docs > docs/configuration.md
"""

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from .config import NodeConfig
from .config_sources import ENV_DELIMITER, ENV_PREFIX

_HEAD = f"""# Configuration of a node

A node reads one TOML file (`tandemlog node --config FILE`); environment variables override it.
Every key has a default, so an empty file gives a master on loopback. An unknown key is an error
that names the valid ones. The last word of a name is its unit: sizes are in bytes, times in
milliseconds.

The environment variable of a key is `{ENV_PREFIX}` plus the key in capitals, with
`{ENV_DELIMITER}` after each section: `flush` in `[store]` is
`{ENV_PREFIX}STORE{ENV_DELIMITER}FLUSH`.

```toml
cluster_id = "orders"
node_id = "n1"
role = "slave"
master = "10.0.0.1:10911"
listen = "0.0.0.0:10911"
advertise = "10.0.0.2:10911"

[store]
directory = "/var/lib/tandemlog"
flush = "sync"

[tls]
ca_file = "/etc/tandemlog/ca.pem"
cert_file = "/etc/tandemlog/n1.pem"
key_file = "/etc/tandemlog/n1.key"

[security]
access_file = "/etc/tandemlog/access.toml"
token_file = "/etc/tandemlog/n1.token"

[replication]
mode = "sync"
min_in_sync = 2
```

This page is generated: change `node/settings/sections.py` and the files beside it (top level:
`config.py`) and run `make docs`."""


def configuration_markdown() -> str:
    """The whole text of docs/configuration.md."""
    return "\n\n".join([_HEAD, *_sections(NodeConfig, "")]) + "\n"


def _sections(model: type[BaseModel], path: str) -> Iterator[str]:
    title = f"## [{path}]" if path else "## Top level"
    rows = ["| key | default | meaning |", "|---|---|---|"]
    nested: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            nested.append((f"{path}.{name}" if path else name, kind))
        else:
            rows.append(f"| `{name}` | {_default(field)} | {_meaning(field)} |")
    introduction = " ".join((model.__doc__ or "").split())
    yield "\n\n".join([title, introduction, "\n".join(rows)])
    for child, kind in nested:
        yield from _sections(kind, child)


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str | Path):
        return f'`"{value}"`'
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{value}`"


def _meaning(field: FieldInfo) -> str:
    choices = ""
    kind = field.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        choices = " or ".join(f"`{each.value}`" for each in kind) + ". "
    elif getattr(kind, "__args__", None) and field.annotation is not None:
        values = [each for each in kind.__args__ if isinstance(each, str)]  # type: ignore[union-attr]
        choices = " or ".join(f"`{each}`" for each in values) + ". " if values else ""
    return f"{choices}{field.description}".replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(configuration_markdown())

"""docs/configuration.md, generated from the declarations of the settings, so that it stays up to
date. The text of a key is the string below it, which only the source has.

usage: python -m tandemlog_server.node.settings.config_docs > docs/configuration.md
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from .node_config import ENV_DELIMITER, ENV_PREFIX, NodeConfig
from .sections import keys_of, section_of

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

This page is generated from the declarations of the settings: `node/settings/sections.py` says where
each section is (top level: `node/settings/node_config.py`). Change it there and run `make docs`."""


def configuration_markdown() -> str:
    """The whole text of docs/configuration.md."""
    return "\n\n".join([_HEAD, *_sections(NodeConfig, "")]) + "\n"


def _sections(section: type, path: str) -> Iterator[str]:
    title = f"## [{path}]" if path else "## Top level"
    rows = ["| key | default | meaning |", "|---|---|---|"]
    nested: list[tuple[str, type]] = []
    descriptions = _descriptions(section)
    for name, field in keys_of(section).items():
        if below := section_of(field):
            nested.append((f"{path}.{name}" if path else name, below))
        else:
            meaning = f"{_choices(field)}{descriptions[name]}".replace("|", "\\|")
            rows.append(f"| `{name}` | {_default(field)} | {meaning} |")
    introduction = " ".join((section.__doc__ or "").split())
    yield "\n\n".join([title, introduction, "\n".join(rows)])
    for child, below in nested:
        yield from _sections(below, child)


def _descriptions(section: type) -> Mapping[str, str]:
    """The string below each field of a class and of those that it inherits from, in one line."""
    texts: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        if kind.__module__.startswith("tandemlog_server."):
            (declared,) = ast.parse(inspect.getsource(kind)).body
            assert isinstance(declared, ast.ClassDef)
            for each, below in pairwise(declared.body):
                match each, below:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                        texts[name] = " ".join(text.split())
    return texts


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


def _choices(field: FieldInfo) -> str:
    kind: Any = field.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(f"`{each.value}`" for each in kind) + ". "
    values = [each for each in getattr(kind, "__args__", ()) if isinstance(each, str)]
    return " or ".join(f"`{each}`" for each in values) + ". " if values else ""


if __name__ == "__main__":
    sys.stdout.write(configuration_markdown())

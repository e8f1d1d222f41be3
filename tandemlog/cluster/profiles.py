"""Named clusters in a file, so that one word says where a cluster is and how to be let in.

    [prod]                                        ~/.config/tandemlog/clusters.toml
    endpoint = "db0.example:10911,db1.example:10911"
    ca_file = "prod/ca.crt"                       relative to the file
    token_file = "~/.secrets/prod.token"

TANDEMLOG_CONFIG_DIR names another folder. The keys are `endpoint` and those of Security.

What several places say about one cluster is put together by `chosen`, a group of settings at a
time, the first place that has any of the group:

    options ─▶ profile named by an option ─▶ TANDEMLOG_… variables ─▶ profile named by a variable

So a cluster that is named on the command line never gets the token, or the endpoint, that the
environment has for another one.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import InvalidArgumentError
from ..transport.security import Security
from .endpoints import parse_endpoints

FILE = "clusters.toml"
FOLDER_VARIABLE = "TANDEMLOG_CONFIG_DIR"
_SECURITY = tuple(each.name for each in fields(Security))
_GROUPS = (
    ("endpoint",),
    ("ca_file",),
    ("cert_file", "key_file"),
    ("token", "token_file"),
    ("server_name",),
    ("insecure",),
)
VARIABLES = {
    "TANDEMLOG_ENDPOINT": "endpoint",
    "TANDEMLOG_CLUSTER": "cluster",
    "TANDEMLOG_CA_FILE": "ca_file",
    "TANDEMLOG_CERT_FILE": "cert_file",
    "TANDEMLOG_KEY_FILE": "key_file",
    "TANDEMLOG_TOKEN": "token",
    "TANDEMLOG_TOKEN_FILE": "token_file",
    "TANDEMLOG_SERVER_NAME": "server_name",
}
"""Variable -> setting."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster of the file: `endpoint` is empty where the file does not give one."""

    name: str
    endpoint: str
    security: Security


def profile_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the clusters are named."""
    if folder := environment.get(FOLDER_VARIABLE, ""):
        return Path(folder).expanduser() / FILE
    home = environment.get("XDG_CONFIG_HOME", "") or Path("~/.config").expanduser()
    return Path(home) / "tandemlog" / FILE


def chosen(options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Profile:
    """What `options` (endpoint, cluster, and those of Security; empty ones do not count) and
    `environment` say together: see the module. Raises InvalidArgumentError."""
    variables = {
        setting: environment[name] for name, setting in VARIABLES.items() if environment.get(name)
    }
    layers: list[Mapping[str, Any]] = []
    name = ""
    for layer in (options, variables):
        layers.append(layer)
        if not name and (name := str(layer.get("cluster") or "")):
            layers.append(profile_values(name, environment)[1])
    values: dict[str, Any] = {}
    for group in _GROUPS:
        for each in layers:
            if any(each.get(key) for key in group):
                values |= {key: each[key] for key in group if each.get(key)}
                break
    try:
        security = Security(**{key: each for key, each in values.items() if key != "endpoint"})
    except ValueError as error:
        raise InvalidArgumentError(f"{f'cluster {name}: ' if name else ''}{error}") from None
    return Profile(name, values.get("endpoint", ""), security)


def load_profile(name: str, environment: Mapping[str, str] = os.environ) -> Profile:
    """The cluster that the file of the module calls `name`. Raises InvalidArgumentError."""
    folders = (FOLDER_VARIABLE, "XDG_CONFIG_HOME")
    return chosen(
        {"cluster": name}, {each: environment[each] for each in folders if each in environment}
    )


def profile_values(
    name: str, environment: Mapping[str, str] = os.environ
) -> tuple[Path, dict[str, Any]]:
    """The file, and the keys and values that it has for `name`; names of files are made absolute.
    Raises InvalidArgumentError."""
    path = profile_file(environment)
    content = _read(path, name)
    values = content.get(name)
    if not isinstance(values, dict):
        there = ", ".join(sorted(key for key, each in content.items() if isinstance(each, dict)))
        raise InvalidArgumentError(
            f"{path} has no cluster {name!r}; there are: {there or 'none'}", field=name
        )
    return path, {key: _checked(path, name, key, each) for key, each in values.items()}


def _read(path: Path, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidArgumentError(
            f"cluster {name!r}: {path} does not exist; it names clusters, each as a table with "
            "endpoint, ca_file, token_file",
            field=name,
        ) from None
    except OSError as error:
        raise InvalidArgumentError(f"cannot read {path}: {error.strerror}", field=name) from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise InvalidArgumentError(f"{path} is not TOML: {error}", field=name) from None


def _checked(path: Path, name: str, key: str, value: object) -> object:
    """Values are never quoted: one of them may be a token."""
    where = f"{path}: [{name}] {key}"
    if key != "endpoint" and key not in _SECURITY:
        close = difflib.get_close_matches(key, ("endpoint", *_SECURITY), n=1)
        meant = f": is {close[0]} meant?" if close else f"; valid: endpoint, {', '.join(_SECURITY)}"
        raise InvalidArgumentError(f"{where}: unknown key{meant}", field=key)
    wanted: type = bool if key == "insecure" else str
    if not isinstance(value, wanted):
        kind = "true or false" if wanted is bool else "text in quotes"
        raise InvalidArgumentError(f"{where}: must be {kind}", field=key)
    if key == "endpoint":
        try:
            parse_endpoints(str(value))
        except ValueError as error:
            raise InvalidArgumentError(f"{where}: {error}", field=key) from None
    if key.endswith("_file") and value:
        return str(path.parent / Path(str(value)).expanduser())
    return value

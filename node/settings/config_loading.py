"""Reads the settings of a node, and says what is wrong with them and who has to change it.

    store.flush    TANDEMLOG_STORE__FLUSH        the key itself
                   TANDEMLOG_STORE={"flush":…}   JSON of a section that it is in
                   TANDEMLOG_STORE__FLUSH__X     something below it
                   the file                      else

An error names the source that has to be changed: an operator who is sent to a correct file would
not think of a variable that a service manager set.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import SettingsError

from .config_error import ConfigError
from .node_config import ENV_DELIMITER, ENV_PREFIX, NodeConfig
from .sections import keys_of, section_of

# Environment variables with our prefix that are not settings of a node: what the command line
# reads, and what Kubernetes puts there for a service that happens to be called tandemlog.
_NOT_SETTINGS = re.compile(
    r"TANDEMLOG_(ENDPOINT|FORMAT|CLUSTER|(CA|CERT|KEY|TOKEN)_FILE|TOKEN|SERVER_NAME|CONFIG_DIR|"
    r"MAX_UNPACKED_BYTES|"
    r"SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP)(_.*)?)?)$",
    re.IGNORECASE,
)


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


def variable_of(location: tuple[str | int, ...]) -> str:
    """The variable of the key at `location`, in capitals."""
    return (ENV_PREFIX + ENV_DELIMITER.join(str(part) for part in location)).upper()


def location_of(variable: str) -> tuple[str, ...]:
    """The key that a variable gives, if there is one."""
    return tuple(variable.upper().removeprefix(ENV_PREFIX).lower().split(ENV_DELIMITER))


def givers(location: tuple[str | int, ...], environment: Mapping[str, str]) -> list[str]:
    """The variables that gave the value at `location`; none if the file or a default did."""
    wanted = variable_of(location)
    variables = [
        name
        for name in environment
        if name.upper() == wanted or name.upper().startswith(wanted + ENV_DELIMITER)
    ]
    for depth in range(len(location) - 1, 0, -1):
        if variables:
            break
        above = variable_of(location[:depth])
        variables = [
            name
            for name, text in environment.items()
            if name.upper() == above and _holds(text, location[depth:])
        ]
    return sorted(variables)


def _holds(text: str, location: tuple[str | int, ...]) -> bool:
    """Whether the JSON of a variable has a value at `location`."""
    try:
        value = json.loads(text)
        for part in location:
            value = value[part]
    except (ValueError, LookupError, TypeError):
        return False
    return True

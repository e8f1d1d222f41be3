"""The settings of a running node: what each is, where it came from, and changing one.

    file ──┐
    environment ──▶ NodeConfig ──▶ the node      show: value, source, and what a restart changes
    default ──┘         ▲
                        └── set KEY VALUE: the whole configuration is checked, the file written,
                            and what is LIVE counts at once

A change is written into the node's own file, so that it holds over restarts and stands where an
operator looks; comments and order of the file stay. What the environment gives cannot be changed
here, as it counts more than the file. Secrets are never shown.
"""

import os
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from tandemlog.lazy import lazy

from ..private_files import replace_text
from .config_error import ConfigError
from .config_loading import config_of, givers, key_at
from .node_config import NodeConfig
from .sections import keys_of, section_of

if TYPE_CHECKING:
    import tomlkit
else:
    # only a change of the file needs it
    tomlkit = lazy("tomlkit")

LIVE = ("log.level", "store.retention", "groups", "transactions")
"""Keys and sections of which a change counts at once; see Node.apply_settings."""
DEFAULT = "default"
HIDDEN = "***"

Location = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One key; values as TOML writes them. `next_value` is what a restart would make of it."""

    key: str
    value: str
    default: str
    source: str
    live: bool
    next_value: str


class RunningSettings:
    """See the module. `path` is the node's file, None without one; `apply` gives the node a
    changed configuration. Methods read and write files: call them in a thread."""

    def __init__(
        self, config: NodeConfig, path: Path | None, apply: Callable[[NodeConfig], None]
    ) -> None:
        self.config = config
        self._path = None if path is None else path.absolute()
        self._apply = apply
        self._lock = threading.Lock()

    def rows(self) -> list[SettingRow]:
        """Every key, in the order of docs/configuration.md. Raises ConfigError if the file cannot
        be read."""
        content = self._content()
        try:
            following = config_of(content, self._path)
        except ConfigError:
            following = self.config  # a restart would say what is wrong with the file
        return [self._row(location, content, following) for location in locations(NodeConfig)]

    def change(
        self, key: str, text: str, *, unset: bool = False, dry_run: bool = False
    ) -> tuple[SettingRow, str]:
        """Give `key` a value, in the file and, if it is live, in the node; returns the new row and
        the value before. Raises ConfigError, and then nothing has changed."""
        location = tuple(key.split("."))
        if location not in set(locations(NodeConfig)):
            raise ConfigError(f"there is no setting {key!r}: `tandemlog config show` lists them")
        with self._lock:
            if variables := givers(location, os.environ):
                raise ConfigError(
                    f"{key} is given by {', '.join(variables)} in the node's environment, which "
                    "counts more than its file: change it there and restart the node"
                )
            if self._path is None:
                raise ConfigError(
                    "this node was started without a configuration file, so a change could not "
                    "last: start it with --config FILE"
                )
            document = self._document(self._path)
            before = _shown(location, _value(config_of(document.unwrap(), self._path), location))
            _put(document, location, None if unset else _parsed(text))
            content = document.unwrap()
            following = config_of(content, self._path)
            running = _with(self.config, location, following) if _is_live(location) else None
            if not dry_run:
                self._write(self._path, tomlkit.dumps(document))
                if running is not None:
                    self.config = running
                    self._apply(running)
            return self._row(location, content, following), before

    def _row(
        self, location: Location, content: Mapping[str, Any], following: NodeConfig
    ) -> SettingRow:
        value = _shown(location, _value(self.config, location))
        after = _shown(location, _value(following, location))
        variables = givers(location, os.environ)
        source = DEFAULT
        if variables:
            source = ", ".join(variables)
        elif _in(content, location):
            source = str(self._path)
        return SettingRow(
            ".".join(location),
            value,
            _shown(location, _field(location).get_default(call_default_factory=True)),
            source,
            _is_live(location),
            "" if after == value else after,
        )

    def _content(self) -> dict[str, Any]:
        return {} if self._path is None else self._document(self._path).unwrap()

    def _write(self, path: Path, text: str) -> None:
        try:
            replace_text(path, text)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error

    def _document(self, path: Path) -> "tomlkit.TOMLDocument":
        try:
            return tomlkit.parse(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except (tomlkit.exceptions.TOMLKitError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from error


def locations(section: type, above: Location = ()) -> Iterator[Location]:
    """Every key of a configuration that has a value of its own."""
    for name, key in keys_of(section).items():
        if below := section_of(key):
            yield from locations(below, (*above, name))
        else:
            yield (*above, name)


def _is_live(location: Location) -> bool:
    key = ".".join(location)
    return any(key == each or key.startswith(f"{each}.") for each in LIVE)


def _value(config: NodeConfig, location: Location) -> object:
    return reduce(getattr, location, config)


def _field(location: Location) -> FieldInfo:
    declared = key_at(location)
    assert declared is not None
    return declared


def _with(config: NodeConfig, location: Location, source: NodeConfig) -> NodeConfig:
    """`config` with the value that `source` has at `location`. Raises ConfigError if it does not
    fit the others, because the file has been edited since the node read it."""

    def changed(section: Any, other: Any, names: Location) -> Any:
        name, *below = names
        value = getattr(other, name)
        if below:
            value = changed(getattr(section, name), value, tuple(below))
        if isinstance(section, BaseModel):
            return section.model_copy(update={name: value})
        return replace(section, **{name: value})

    try:
        changed_config = changed(config, source, location)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"{'.'.join(location)} does not fit what the node has been running with since its "
            f"file was edited ({reason}): edit this one in the file too, and restart the node"
        ) from None
    assert isinstance(changed_config, NodeConfig)
    return changed_config


def _shown(location: Location, value: object) -> str:
    """As TOML writes it; empty for None, and a secret hidden."""
    if value is None:
        return ""
    if value and not _field(location).repr:
        return HIDDEN
    return str(tomlkit.item(_plain(value)).as_string())


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 72 and 72.0 are one value
    if isinstance(value, tuple | list | frozenset | set):
        return [_plain(each) for each in value]
    return value


def _parsed(text: str) -> object:
    """A TOML value, else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also a number of thousands of digits
        return text


def _in(content: Mapping[str, Any], location: Location) -> bool:
    table: Any = content
    for name in location:
        if not isinstance(table, Mapping) or name not in table:
            return False
        table = table[name]
    return True


def _put(document: "tomlkit.TOMLDocument", location: Location, value: object) -> None:
    """None takes the key out."""
    table: Any = document
    for name in location[:-1]:
        if name not in table:
            if value is None:
                return
            table[name] = tomlkit.table()
        table = table[name]
    if value is None:
        table.pop(location[-1], None)
    else:
        table[location[-1]] = value

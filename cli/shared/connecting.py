"""How a command reaches its cluster: options, variables, or a profile.

    tandemlog --cluster prod list
    tandemlog list --cluster prod --token-file other.token

The options belong to the program, so each is declared once, in app.py, and is understood by every
command that has --endpoint, before or after its name. tandemlog/cluster/profiles.py has the order
in which the places count.
"""

import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import typer

from tandemlog.cluster.profiles import VARIABLES, chosen
from tandemlog.errors import InvalidArgumentError
from tandemlog.transport.security import Security

ENDPOINT = "endpoint"
SETTINGS = ("cluster", "ca_file", "cert_file", "key_file", "token_file", "server_name")
OPTIONS = {f"--{name.replace('_', '-')}": name for name in SETTINGS}

_security: ContextVar[Security | None] = ContextVar("security", default=None)
_places: ContextVar[tuple[Mapping[str, Any], ...]] = ContextVar("places", default=())


def security() -> Security:
    """How the command that runs connects; chosen now, if it was not before. Raises
    typer.BadParameter."""
    if _security.get() is None:
        choose(*_places.get())
    return _security.get() or Security()


def choose_later(*places: Mapping[str, Any]) -> None:
    """For a command that may not connect at all: what is wrong is reported when it does."""
    _security.set(None)
    _places.set(places)


def variables() -> dict[str, str]:
    """What the program's options say, as variables: for jobs that read them in other processes."""
    names = {setting: name for name, setting in VARIABLES.items()}
    return {names[key]: str(value) for key, value in _merged(_places.get()).items()}


def taken_out(args: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """`args` without the options of this module, and what those say. Raises typer.BadParameter."""
    rest: list[str] = []
    settings: dict[str, str] = {}
    remaining = list(args)
    while remaining:
        each = remaining.pop(0)
        if each == "--":
            return [*rest, each, *remaining], settings
        name, equals, value = each.partition("=")
        if name not in OPTIONS:
            rest.append(each)
            continue
        if not equals:
            if not remaining:
                raise typer.BadParameter(f"{name} needs a value")
            value = remaining.pop(0)
        settings[OPTIONS[name]] = value
    return rest, settings


def choose(
    *places: Mapping[str, Any], endpoint: str = "", environment: Mapping[str, str] = os.environ
) -> str:
    """Choose how this command connects; returns the endpoint, empty if none is given anywhere. The
    first of `places` counts first. `endpoint`: that of the command line. Raises
    typer.BadParameter."""
    try:
        profile = chosen({ENDPOINT: endpoint, **_merged(places)}, environment)
    except InvalidArgumentError as error:
        raise typer.BadParameter(str(error)) from None
    _security.set(profile.security)
    return profile.endpoint


def _merged(places: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for place in reversed(places):
        settings |= {key: place[key] for key in SETTINGS if place.get(key)}
    return settings

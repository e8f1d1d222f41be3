"""Where a setting came from: the variable of the environment that gave it, else the file.

    store.flush    TANDEMLOG_STORE__FLUSH        the key itself
                   TANDEMLOG_STORE={"flush":…}   JSON of a section that it is in
                   TANDEMLOG_STORE__FLUSH__X     something below it

An error names the source that has to be changed: an operator who is sent to a correct file would
not think of a variable that a service manager set.
"""

import json
from collections.abc import Mapping

ENV_PREFIX = "TANDEMLOG_"
ENV_DELIMITER = "__"


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

"""The settings of a node's console: [console]."""

from typing import Annotated

from annotated_types import Ge, Le

from .sections import Section


class ConsoleSection(Section):
    """The pages under /console/ on the HTTP port, for people."""

    enabled: bool = False
    """Whether the node serves the console. It needs http_listen."""
    writes: bool = False
    """Whether identities that may administer can change the cluster from the console. With false it
    only shows."""
    hosts: tuple[str, ...] = ()
    """Further host names, without port, under which browsers reach this node where it does not ask
    who calls. Its own names, addresses and localhost are always taken; others are refused, since
    any web page could read the console through a name of its own that leads here."""
    idle_minutes: Annotated[int, Ge(1), Le(1440)] = 30
    """Minutes after which a session that asks for nothing ends; 12 hours end every session."""

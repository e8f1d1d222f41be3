"""Where a request says that it comes from, and to which name it was sent: the browser's own word.

A browser lets any web page ask any address, and sends along whom it asks for. So a page of another
origin is refused by what the browser tells of it, and a name that was pointed here by someone else
by not being one of this machine's.
"""

import ipaddress
import socket
from collections.abc import Iterable, Mapping

OWN = frozenset({"same-origin", "none", ""})
"""Of Sec-Fetch-Site: this page, a person's own click or address, a program that is no browser."""


class OwnNames:
    """The host names under which this machine's console may be asked."""

    def __init__(self, names: Iterable[str]) -> None:
        own = socket.gethostname()
        every = (own, own.partition(".")[0], "localhost", *names)
        self._names = frozenset(each.lower() for each in every if each)

    def cover(self, host: str) -> bool:
        """`host` is that of a header Host."""
        name = name_of(host)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names or name.endswith(".localhost")
        return True


def name_of(host: str) -> str:
    """Without port and brackets, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def fault_of_question(headers: Mapping[str, str]) -> str:
    """Why a GET of data is not one of the console's own pages; empty if it may be."""
    if headers.get("Sec-Fetch-Site", "") in OWN:
        return ""
    return "another web page asks for this: open the console itself"


def fault_of_change(host: str, content_type: str, headers: Mapping[str, str]) -> str:
    """Why a POST is not one of the console's own pages; empty if it may be."""
    if content_type != "application/json":
        return "a change is sent as application/json"
    origin = headers.get("Origin", "")
    if origin and origin.partition("://")[2].lower() != host.lower():
        return "a change must come from the console's own page, not from another origin"
    return fault_of_question(headers)

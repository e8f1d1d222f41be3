"""The audit log, `tandemlog.audit`: one line for each administrative call, and for refusals.

    call=CreateTopic who=operator from=10.0.0.7:51022 arguments="name=orders" outcome=ok
    refused call=Pull who=orders from=10.0.0.9:40112 reason="identity 'orders' lacks the right …"

A call of an identity that may administrate always gets its line. All others must not fill the
disk, neither by being refused nor, where callers are not asked who they are, by calling: a host
gets LINES lines in a period, all hosts together HOST_LINES times as many, and the next line says
how many were left out. Values that a caller chose are quoted, so that a line break in one cannot
write a line of its own.
"""

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tandemlog.format.words import shortened, visible

from .caller_addresses import host_of

logger = logging.getLogger("tandemlog.audit")

PERIOD_S = 10.0
LINES = 10
HOST_LINES = 20
HOSTS = 256
MAX_TEXT = 300
_PLAIN = re.compile(r"[A-Za-z0-9._@/-]+")
NOT_KNOWN = "-"
OK = "ok"


@dataclass(slots=True)
class _Host:
    """Lines of a host in a period, and those that were left out since the last one."""

    ends_at: float
    lines: int = 0
    left_out: int = 0


class RefusalLines:
    """Which refusals get a line: see the module. `monotonic` is in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._all = _Host(0.0)
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    def let(self, host: str) -> int | None:
        """How many refusals were left out since the last line; None if this one gets no line."""
        now = self._monotonic()
        row = self._hosts.get(host)
        if row is None:
            while len(self._hosts) >= HOSTS:
                self._all.left_out += self._hosts.popitem(last=False)[1].left_out
            row = self._hosts[host] = _Host(now + PERIOD_S)
        self._hosts.move_to_end(host)
        for each in (row, self._all):
            if now >= each.ends_at:
                each.ends_at, each.lines = now + PERIOD_S, 0
        if row.lines >= LINES or self._all.lines >= LINES * HOST_LINES:
            row.left_out += 1
            return None
        row.lines += 1
        self._all.lines += 1
        left_out = row.left_out + self._all.left_out
        row.left_out = self._all.left_out = 0
        return left_out


class AuditLog:
    """Writes the lines."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._lines = RefusalLines(monotonic)
        self.unknown_total = 0

    def left_out(self, peer: str) -> str | None:
        """For a line of another logger about what `peer` sent, which counts as one of these: the
        text at its end; None if it gets no line."""
        left_out = self._lines.let(host_of(peer))
        return None if left_out is None else _more(left_out)

    def called(
        self,
        call: str,
        who: str,
        peer: str,
        arguments: str,
        outcome: str = OK,
        *,
        always: bool = True,
    ) -> None:
        """An administrative call has ended; `outcome` is `ok` or the error's code and text."""
        left_out = 0 if always else self._lines.let(host_of(peer))
        if left_out is None:
            return
        logger.info(
            "call=%s who=%s from=%s arguments=%s outcome=%s%s",
            call,
            _name(who),
            peer,
            _text(arguments),
            outcome if outcome == OK else _text(outcome),
            _more(left_out),
        )

    def refused(self, call: str, who: str, peer: str, reason: str) -> None:
        """A call lacked a right or, with an empty `who`, was not let in."""
        self.unknown_total += not who
        left_out = self._lines.let(host_of(peer))
        if left_out is None:
            return
        logger.warning(
            "refused call=%s who=%s from=%s reason=%s%s",
            call,
            _name(who),
            peer,
            _text(reason),
            _more(left_out),
        )


def _more(left_out: int) -> str:
    return f" ({left_out} more since the last line)" if left_out else ""


def _text(value: str) -> str:
    return visible(json.dumps(shortened(value, MAX_TEXT), ensure_ascii=False))


def _name(who: str) -> str:
    """Names of the access file as they are; a name from a certificate may have any letters."""
    if not who:
        return NOT_KNOWN
    return who if _PLAIN.fullmatch(who) else _text(who)

"""Who is logged in at a console, and who tries too often.

    log in ──▶ key (the browser's cookie) ──▶ Session: proof, name, CSRF token
    ask    ──▶ found, and its idle time begins again
    idle_s without a request, or LONGEST_S old, or logged out, or pushed out ──▶ gone

Pure: `now` is given, in seconds of a clock that never goes back. A key is kept as its digest, so
that what memory shows cannot be used. All is bounded: SESSIONS, and OF_ONE_NAME of each identity,
whose oldest goes first, so that one caller pushes out its own alone.
"""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from ..access.identities import digest_of

LONGEST_S = 12 * 3600.0
SESSIONS = 256
OF_ONE_NAME = 16
WRONG_PER_HOST_S = 0.2
"""Wrong tokens a second that a host may send for long; five may come at once."""
WRONG_AT_ONCE = 5
WRONG_OF_ALL_S = 2.0
ALL_AT_ONCE = 50
HOSTS = 1_024


@dataclass(slots=True, eq=False)
class Session:
    """One log-in. `token` proves to nodes who calls: it is that of an identity, or a pass for
    `certificate`, which this node alone knows."""

    name: str
    token: str = field(default="", repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    began_at: float = 0.0
    used_at: float = 0.0


class Sessions:
    """See the module. `ended` is called with each session that is gone."""

    def __init__(self, idle_s: float, ended: Callable[[Session], None]) -> None:
        self._idle_s = idle_s
        self._ended = ended
        self._rows: OrderedDict[bytes, Session] = OrderedDict()
        """By the digest of their key; what was used longest ago comes first."""

    def __len__(self) -> int:
        return len(self._rows)

    def open(self, session: Session, now: float) -> str:
        """Keep `session`; returns the key by which it is found."""
        key = secrets.token_urlsafe(32)
        self.keep(digest_of(key), session, now)
        return key

    def keep(self, digest: bytes, session: Session, now: float) -> None:
        """Keep `session` under `digest`, after those that are over are gone."""
        self.sweep(now)
        session.began_at = session.used_at = now
        same = [each for each, row in self._rows.items() if row.name == session.name]
        if len(same) >= OF_ONE_NAME:
            self._end(same[0])
        elif len(self._rows) >= SESSIONS:
            self._end(next(iter(self._rows)))
        self._rows[digest] = session

    def find(self, key: str, now: float) -> Session | None:
        return self.find_digest(digest_of(key), now)

    def find_digest(self, digest: bytes, now: float) -> Session | None:
        session = self._rows.get(digest)
        if session is None:
            return None
        if self._is_over(session, now):
            self._end(digest)
            return None
        session.used_at = now
        self._rows.move_to_end(digest)
        return session

    def close(self, session: Session) -> None:
        """It is logged out; a session that is gone already is none to log out."""
        for digest, row in self._rows.items():
            if row is session:
                self._end(digest)
                return

    def close_all(self) -> None:
        for digest in list(self._rows):
            self._end(digest)

    def sweep(self, now: float) -> None:
        """End what is over."""
        for digest in [each for each, row in self._rows.items() if self._is_over(row, now)]:
            self._end(digest)

    def _is_over(self, session: Session, now: float) -> bool:
        return now - session.used_at >= self._idle_s or now - session.began_at >= LONGEST_S

    def _end(self, digest: bytes) -> None:
        self._ended(self._rows.pop(digest))


def same_csrf(session: Session, token: str) -> bool:
    """Whether `token` is the session's, in a time that does not depend on where they differ."""
    return hmac.compare_digest(session.csrf.encode(), token.encode("utf-8", "replace"))


class WrongTokens:
    """How often hosts may be wrong; see the module."""

    def __init__(self, now: float) -> None:
        self._hosts: OrderedDict[str, _Tries] = OrderedDict()
        self._all = _Tries(ALL_AT_ONCE, WRONG_OF_ALL_S, now)
        self._right: OrderedDict[str, None] = OrderedDict()

    def wait_s(self, host: str, now: float) -> float:
        """How long `host` has to wait before it may try; 0 if it may now."""
        row = self._hosts.get(host)
        own = 0.0 if row is None else row.wait_s(now)
        return own if host in self._right else max(own, self._all.wait_s(now))

    def add(self, host: str, now: float) -> None:
        """A token from `host` was wrong."""
        row = self._hosts.get(host)
        if row is None:
            while len(self._hosts) >= HOSTS:
                self._hosts.popitem(last=False)
            row = self._hosts[host] = _Tries(WRONG_AT_ONCE, WRONG_PER_HOST_S, now)
        self._hosts.move_to_end(host)
        row.take(now)
        self._all.take(now)

    def right(self, host: str) -> None:
        """A token from `host` was right: from now on it waits for its own wrong ones alone."""
        self._right[host] = None
        self._right.move_to_end(host)
        while len(self._right) > HOSTS:
            self._right.popitem(last=False)


class _Tries:
    """At most `most` at once; they come back one by one, `rate` a second."""

    def __init__(self, most: float, rate: float, now: float) -> None:
        self._most, self._rate = most, rate
        self._left, self._at = most, now

    def take(self, now: float) -> None:
        self._fill(now)
        self._left = max(0.0, self._left - 1)

    def wait_s(self, now: float) -> float:
        self._fill(now)
        return max(0.0, 1 - self._left) / self._rate

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now

"""One login at a time for a node, however many of its calls need one.

    call ─┐                                  ┌─▶ token, for all of them
    call ─┼─▶ join the login that runs, else ┤
    call ─┘   begin one, unless it is a pause └─▶ failed: a pause, each longer than the one before

etcd hashes the password at each login, which takes seconds of a processor where it was told to
hash thoroughly, or is busy. So a login has a time of its own, longer than an attempt: a call that
cannot wait so long goes without, and the login runs on for the next one. Given up with each
attempt, and begun by each call for itself, logins would keep etcd hashing for ever, and none would
end in time. So would members that refuse the tokens that they have just given: the first such token
is renewed at once, as after a restart of etcd, and behind each further one comes a pause.
"""

import asyncio
from collections.abc import Awaitable, Callable

from .verdicts import AttemptError, Verdict

LOGIN_S = 10.0
LEAST_PAUSE_S, MOST_PAUSE_S = 0.2, 5.0
YOUNG_S = 1.0
"""A token that is refused sooner has hardly been of use."""


class Login:
    """See the module. `log_in(endpoint, seconds)` gives the token, empty if none is needed, or
    raises AttemptError; `monotonic` gives seconds."""

    def __init__(
        self,
        log_in: Callable[[str, float], Awaitable[str]],
        monotonic: Callable[[], float],
    ) -> None:
        self.token = ""
        self._log_in = log_in
        self._monotonic = monotonic
        self._running: asyncio.Task[str] | None = None
        self._renewed_at = float("-inf")
        self._refused_young = False
        self._pause_s = 0.0
        self._pause_until = float("-inf")
        self._failure = AttemptError(Verdict.ELSEWHERE, "", "")

    async def wait(self, endpoint: str, seconds: float) -> str:
        """The token, within `seconds`. Raises AttemptError; nothing else was sent."""
        if self.token:
            return self.token
        if self._running is None:
            if self._monotonic() < self._pause_until:
                raise AttemptError(
                    self._failure.verdict, endpoint, f"the last login failed: {self._failure}"
                )
            login = self._log_in(endpoint, LOGIN_S)
            self._running = asyncio.ensure_future(login)
            self._running.add_done_callback(self._ended)
        running = self._running
        await asyncio.wait((running,), timeout=seconds)
        if not running.done():
            raise AttemptError(
                Verdict.ELSEWHERE, endpoint, f"the login takes longer than {seconds:.1f} s"
            )
        if running.cancelled():
            raise AttemptError(Verdict.ELSEWHERE, endpoint, "this client was closed")
        return running.result()

    def forget(self, token: str) -> None:
        """A call with `token` was refused: the next call logs in again, unless another one has
        renewed it already."""
        if self.token != token:
            return
        self.token = ""
        is_young = self._monotonic() < self._renewed_at + YOUNG_S
        if is_young and self._refused_young:
            self._failure = AttemptError(Verdict.ELSEWHERE, "", "a new token was refused at once")
            self._pause()
        self._refused_young = is_young

    def close(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _ended(self, login: "asyncio.Task[str]") -> None:
        self._running = None
        if login.cancelled():
            return
        failure = login.exception()
        if failure is None:
            self.token, self._renewed_at = login.result(), self._monotonic()
            if not self._refused_young:
                self._pause_s = 0.0
            return
        if isinstance(failure, AttemptError):
            self._failure = failure
        self._pause()

    def _pause(self) -> None:
        self._pause_s = min(max(2 * self._pause_s, LEAST_PAUSE_S), MOST_PAUSE_S)
        self._pause_until = self._monotonic() + self._pause_s

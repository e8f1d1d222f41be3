"""Logins at a coordinator that takes long over each: one at a time, and each runs to its end."""

import asyncio

import pytest

from tandemlog_server.ha.coordinator.login import LEAST_PAUSE_S, YOUNG_S, Login
from tandemlog_server.ha.coordinator.verdicts import AttemptError, Verdict


class Slow:
    """A coordinator that answers a login when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.begun = 0
        self.answers: list[asyncio.Future[str]] = []
        self.login = Login(self.log_in, lambda: self.now)

    async def log_in(self, endpoint: str, seconds: float) -> str:
        self.begun += 1
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer

    async def give_up(self) -> AttemptError:
        with pytest.raises(AttemptError) as raised:
            await self.login.wait("e:1", 0)
        return raised.value

    async def fail(self, verdict: Verdict) -> None:
        waiting = asyncio.ensure_future(self.login.wait("e:1", 60))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.answers[-1].set_exception(AttemptError(verdict, "e:1", "wrong password"))
        with pytest.raises(AttemptError, match="wrong password"):
            await waiting


async def test_a_login_outlives_the_calls_that_cannot_wait_for_it() -> None:
    slow = Slow()
    for _ in range(5):
        assert "takes longer" in str(await slow.give_up())
        await asyncio.sleep(0)
    assert slow.begun == 1
    calls = [asyncio.ensure_future(slow.login.wait("e:1", 60)) for _ in range(3)]
    await asyncio.sleep(0)
    slow.answers[0].set_result("token")
    assert await asyncio.gather(*calls) == ["token"] * 3
    assert await slow.login.wait("e:2", 0) == "token"
    assert slow.begun == 1


async def test_after_a_failure_comes_a_pause_each_longer_than_the_one_before() -> None:
    slow = Slow()
    for pause_s in (LEAST_PAUSE_S, 2 * LEAST_PAUSE_S, 4 * LEAST_PAUSE_S):
        begun = slow.begun
        await slow.fail(Verdict.REFUSED)
        slow.now += pause_s * 0.9
        assert (await slow.give_up()).verdict is Verdict.REFUSED
        assert slow.begun == begun + 1
        slow.now += pause_s * 0.2


async def test_one_refused_token_is_forgotten_once() -> None:
    """Two calls that were refused with the old one do not throw the new one away, however young
    either is: a coordinator may restart right after a login."""
    slow = Slow()
    for number, token in enumerate(("old", "new")):
        waiting = asyncio.ensure_future(slow.login.wait("e:1", 60))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        slow.answers[number].set_result(token)
        assert await waiting == token
        slow.login.forget("old")
    assert slow.login.token == "new"
    assert await slow.login.wait("e:1", 0) == "new"
    assert slow.begun == 2


async def test_a_client_that_is_closed_waits_for_no_login() -> None:
    slow = Slow()
    waiting = asyncio.ensure_future(slow.login.wait("e:1", 60))
    await asyncio.sleep(0)
    slow.login.close()
    with pytest.raises(AttemptError, match="closed"):
        await waiting


async def test_tokens_that_are_refused_at_once_are_not_renewed_without_pause() -> None:
    slow = Slow()

    async def renew() -> None:
        waiting = asyncio.ensure_future(slow.login.wait("e:1", 60))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        slow.answers[-1].set_result(f"token {slow.begun}")
        assert await waiting == f"token {slow.begun}"

    await renew()
    slow.now += 60
    slow.login.forget("token 1")
    await renew()
    slow.login.forget("token 2")
    await renew()  # the first one that was young: etcd may have restarted
    for pause_s in (LEAST_PAUSE_S, 2 * LEAST_PAUSE_S):
        slow.login.forget(f"token {slow.begun}")
        slow.now += pause_s * 0.9
        assert "a new token was refused at once" in str(await slow.give_up())
        slow.now += pause_s * 0.2
        await renew()
    slow.now += YOUNG_S
    slow.login.forget(f"token {slow.begun}")
    await renew()  # that one was of use

"""A broker with a little log, and a node that may follow it."""

from collections.abc import AsyncIterator

import pytest

from fakes.follower_pair import Pair


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    await made.broker.start()
    yield made
    await made.unfollow()
    await made.broker.stop()

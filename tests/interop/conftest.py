"""The interop tests share the class path of one Maven run."""

import pytest

from interop.rocketmq import jars


@pytest.fixture(scope="session", autouse=True)
def rocketmq_jars() -> str:
    return jars()

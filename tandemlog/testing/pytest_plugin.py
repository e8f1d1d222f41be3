"""Fixtures for pytest, which loads this module by itself where tandemlog is installed.

    tandemlog_cluster   a Cluster for the whole session
    tandemlog_topic     the name of a topic that no other test has; @pytest.mark.tandemlog_queues(n)
                        sets its number of queues (default: 4)

A test run that uses neither loads nothing but this module. To change the cluster, define the
fixture `tandemlog_cluster` in a conftest of your own.
"""

import contextlib
import importlib
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from .cluster import Cluster

QUEUES: Final = 4
_LONGEST: Final = 80
_NUMBERS: Final = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """The mark is known, so `--strict-markers` accepts it."""
    config.addinivalue_line(
        "markers", "tandemlog_queues(count): number of queues of the fixture tandemlog_topic"
    )


@pytest.fixture(scope="session")
def tandemlog_cluster() -> "Iterator[Cluster]":
    """A cluster of one node in this process, until the session ends."""
    with importlib.import_module("tandemlog.testing").Cluster() as cluster:
        yield cluster


@pytest.fixture
def tandemlog_topic(tandemlog_cluster: "Cluster", request: pytest.FixtureRequest) -> Iterator[str]:
    """A new topic of `tandemlog_cluster`, named after the test; it is deleted after the test."""
    mark = request.node.get_closest_marker("tandemlog_queues")
    queues = mark.args[0] if mark is not None and mark.args else QUEUES
    name = f"{topic_name(request.node.name)}-{next(_NUMBERS)}"
    tandemlog_cluster.create_topic(name, queues)
    yield name
    errors = importlib.import_module("tandemlog.errors")
    with contextlib.suppress(errors.UnknownTopicError):  # the test may have deleted it, or all
        tandemlog_cluster.delete_topic(name)


def topic_name(text: str) -> str:
    """The characters of `text` that a topic may have; never empty."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:_LONGEST] or "topic"

"""A quick part of RocketMQ's own integration tests, unchanged, against three nodes.

All of them: `make rocketmq-tests`. What comes of each is in integration/outcomes.toml.
"""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from interop.integration_outcomes import Ran, outcomes, surprises
from interop.integration_tests import run
from interop.nodes_for_clients import three_nodes

pytestmark = [pytest.mark.interop, pytest.mark.lane("elections")]

QUICK = {each.name: each for each in outcomes() if each.quick}
PROCESSES = 2


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Ran]]:
    folder = tmp_path_factory.mktemp("integration")
    found: dict[str, list[Ran]] = defaultdict(list)
    with three_nodes(folder) as name_servers, ThreadPoolExecutor(PROCESSES) as threads:

        def part(number: int) -> list[Ran]:
            classes = list(QUICK)[number::PROCESSES]
            return list(run(classes, name_servers, folder / f"tests-{number}"))

        for rows in threads.map(part, range(PROCESSES)):
            for row in rows:
                found[row.name].append(row)
    return found


@pytest.mark.parametrize("name", QUICK)
def test_a_class_of_rocketmqs_tests(ran: dict[str, list[Ran]], name: str) -> None:
    found = surprises(QUICK[name], ran[name])
    assert not found, "\n".join(found)
